"""MNIST: outputs to look at, their soft labels, and what a LeNet-5 makes of them."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from zetamix.data.augment import Scale
from zetamix.experiments.reproduce.cells import Measuring, ReproduceError
from zetamix.experiments.reproduce.experiments.workbench import Found, Workbench
from zetamix.measure import judge
from zetamix.measure.estimate import mean_of
from zetamix.measure.realism import predict
from zetamix.methods import parse
from zetamix.models import initialise

# `zetamix.experiments.inspect` needs matplotlib, which a machine that only trains can do without
if TYPE_CHECKING:
    from zetamix.experiments.oracle import Classifier
    from zetamix.measure.mixed_samples import MixedSamples

METHODS = ("none", "mixup:1.0", "zeta:2.8")
BATCH = 25
PER_CLASS = 10
EXAMPLES = 4


def cells() -> list[Measuring]:
    oracle = Measuring("oracle", "mnist", "none", recipe={"model": "lenet5", "epochs": 20})
    recipe = {"batch": BATCH, "per_class": PER_CLASS, "examples": EXAMPLES}
    return [oracle, *(Measuring("realism", "mnist", method, recipe=recipe) for method in METHODS)]


def measure_oracle(cell: Measuring, bench: Workbench) -> Found:
    """Train LeNet-5 on the training split and measure it on the test split."""
    from zetamix.experiments.oracle import Classifier, train_oracle

    dataset = bench.dataset
    if dataset.test is None:
        raise ReproduceError(f"{dataset.name} has no test split to measure an oracle on.")
    oracle = train_oracle(
        dataset.train.samples,
        dataset.train.labels,
        (dataset.test.samples, dataset.test.labels),
        dataset.num_classes,
        model=cell.recipe["model"],
        epochs=cell.recipe["epochs"],
        seed=cell.seed,
        device=bench.device,
        measured_on="test",
    )
    network = oracle.classify
    if not isinstance(network, Classifier):
        raise TypeError(f"Expected a network to keep, got {type(network).__name__}.")
    arrays = {f"model.{name}": part for name, part in network.model.state_dict().items()}
    arrays |= {"scale.mean": network.scale.mean, "scale.std": network.scale.std}
    return Found({"accuracy": oracle.accuracy.as_dict(), "name": oracle.description}, arrays)


def load_oracle(bench: Workbench) -> "Classifier":
    """The oracle of the last record, as it was trained."""
    from zetamix.experiments.oracle import Classifier

    record = bench.last("oracle")
    arrays = bench.results.arrays(record)
    shape = bench.dataset.shape
    model = initialise(record.recipe["model"], bench.dataset.num_classes, shape, record.seed)
    prefix = "model."
    named = {name for name in arrays if name.startswith(prefix)}
    model.load_state_dict({name.removeprefix(prefix): arrays[name] for name in named})
    network = Classifier(model, Scale(arrays["scale.mean"], arrays["scale.std"]))
    network.scale = network.scale.to(bench.device)
    return network.to(bench.device).eval()


def measure_realism(cell: Measuring, bench: Workbench) -> Found:
    """Outputs of the first images of each class to show, and of the test split to be judged.

    The oracle has seen the first ones in training and judges only the others.
    """
    dataset, oracle = bench.dataset, load_oracle(bench)
    first = first_of_each_class(dataset.train.labels, dataset.num_classes, cell.recipe["per_class"])
    shown = _mix(cell, dataset.train.take(first), dataset.train.labels[first], bench)
    judged = _judged(cell, cell.method, bench)
    found = judge(oracle, judged.samples, judged.targets)
    estimates = {**found.summary(), "loss": mean_of(found.losses)}
    values = {name: estimate.as_dict() for name, estimate in estimates.items()}
    places = confusing_places(cell, oracle, bench)
    arrays = {
        "shown": _bytes(shown.samples),
        "shown_targets": shown.targets.half(),
        "entropies": found.entropies.float(),
        "cross_entropies": found.cross_entropies.float(),
        "examples": _bytes(judged.samples[places]),
        "example_targets": judged.targets[places],
        "example_predictions": predict(oracle, judged.samples[places]).softmax(1),
    }
    return Found({**values, "judged": "outputs of the test split"}, arrays)


def first_of_each_class(labels: Tensor, classes: int, count: int) -> Tensor:
    """Rows of the first `count` samples of each class, class after class."""
    return torch.cat([(labels == label).nonzero().squeeze(1)[:count] for label in range(classes)])


def confusing_places(cell: Measuring, oracle: "Classifier", bench: Workbench) -> Tensor:
    """Where the oracle is surest that a mixup output shows a class that its label rules out.

    The paper picks outputs of mixup that look like another digit; this is the rule behind ours,
    and the outputs of other methods in the same places are shown beside them.
    """
    outputs = _judged(cell, "mixup:1.0", bench)
    predicted = predict(oracle, outputs.samples).softmax(1)
    surest, seen = predicted.max(1)
    ruled_out = outputs.targets.gather(1, seen[:, None]).squeeze(1) == 0
    order = torch.where(ruled_out, surest, -1.0).argsort(descending=True, stable=True)
    return order[: cell.recipe["examples"]]


def _judged(cell: Measuring, method: str, bench: Workbench) -> "MixedSamples":
    test = bench.dataset.test
    if test is None:
        raise ReproduceError(f"{bench.dataset.name} has no test split to judge outputs of.")
    other = Measuring(cell.kind, cell.dataset, method, cell.seed, cell.recipe)
    return _mix(other, test.samples, test.labels, bench)


def _mix(cell: Measuring, samples: Tensor, labels: Tensor, bench: Workbench) -> "MixedSamples":
    from zetamix.measure.mixed_samples import mix_samples

    return mix_samples(
        parse(cell.method),
        samples.to(bench.device),
        labels.to(bench.device),
        bench.dataset.num_classes,
        groups=[torch.arange(len(labels))],
        batch_size=cell.recipe["batch"],
        # the same batches for every method
        generator=torch.Generator().manual_seed(cell.seed),
    )


def _bytes(images: Tensor) -> Tensor:
    return images.round().clamp(0, 255).to(torch.uint8).squeeze(1)
