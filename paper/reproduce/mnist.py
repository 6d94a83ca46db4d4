"""MNIST: example outputs, their soft labels, and the predictions of a LeNet-5 oracle."""

import dataclasses

import torch
from torch import Tensor

from paper.measure import judge
from paper.measure.estimate import mean_of
from paper.measure.mixed_samples import MixedSamples
from paper.measure.oracle import Classifier, train_oracle
from paper.measure.realism import predict
from paper.reproduce.measure_context import MeasureContext, Measured
from paper.results.paper_cells import MeasurementCell, ReproduceError
from zetamix_lab.data.augment import Scale
from zetamix_lab.models import initialise

METHODS = ("none", "mixup:1.0", "zeta:2.8")
BATCH = 25
PER_CLASS = 10
EXAMPLES = 4


def cells() -> list[MeasurementCell]:
    oracle = MeasurementCell("oracle", "mnist", "none", recipe={"model": "lenet5", "epochs": 20})
    recipe = {"batch": BATCH, "per_class": PER_CLASS, "examples": EXAMPLES}
    return [
        oracle,
        *(MeasurementCell("realism", "mnist", method, recipe=recipe) for method in METHODS),
    ]


def measure_oracle(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """Train LeNet-5 on the training split; its accuracy is that on the test split."""
    dataset = context.dataset
    if dataset.test is None:
        raise ReproduceError(f"{dataset.name} has no test split to evaluate an oracle on.")
    oracle = train_oracle(
        dataset.train.samples,
        dataset.train.labels,
        (dataset.test.samples, dataset.test.labels),
        dataset.num_classes,
        model=cell.recipe["model"],
        epochs=cell.recipe["epochs"],
        seed=cell.seed,
        device=context.device,
        measured_on="test",
    )
    network = oracle.classify
    if not isinstance(network, Classifier):
        raise TypeError(f"Expected a Classifier to store, got {type(network).__name__}.")
    arrays = {f"model.{name}": part for name, part in network.model.state_dict().items()}
    arrays |= {"scale.mean": network.scale.mean, "scale.std": network.scale.std}
    return Measured({"accuracy": oracle.accuracy.as_dict(), "name": oracle.description}, arrays)


def load_oracle(context: MeasureContext) -> Classifier:
    """The oracle of the latest record, with its trained weights."""
    record = context.latest("oracle")
    arrays = context.store.arrays(record)
    shape = context.dataset.shape
    model = initialise(record.recipe["model"], context.dataset.num_classes, shape, record.seed)
    prefix = "model."
    named = {name for name in arrays if name.startswith(prefix)}
    model.load_state_dict({name.removeprefix(prefix): arrays[name] for name in named})
    network = Classifier(model, Scale(arrays["scale.mean"], arrays["scale.std"]))
    network.scale = network.scale.to(context.device)
    return network.to(context.device).eval()


def measure_realism(cell: MeasurementCell, context: MeasureContext) -> Measured:
    """Outputs of training images to show, and of test images for the oracle to evaluate.

    The oracle was trained on the former, so it evaluates only the latter.
    """
    dataset, oracle = context.dataset, load_oracle(context)
    first = first_of_each_class(dataset.train.labels, dataset.num_classes, cell.recipe["per_class"])
    images, labels = dataset.train.take(first), dataset.train.labels[first]
    shown = context.mix(cell, images, labels)
    outputs = _mix_test_split(cell, context)
    realism = judge(oracle, outputs.samples, outputs.targets)
    estimates = {**realism.summary(), "loss": mean_of(realism.losses)}
    values = {name: estimate.as_dict() for name, estimate in estimates.items()}
    rows = confusing_rows(cell, oracle, context)
    arrays = {
        "shown": _to_bytes(shown.samples),
        "shown_targets": shown.targets.half(),
        "entropies": realism.entropies.float(),
        "cross_entropies": realism.cross_entropies.float(),
        "examples": _to_bytes(outputs.samples[rows]),
        "example_targets": outputs.targets[rows],
        "example_predictions": predict(oracle, outputs.samples[rows]).softmax(1),
    }
    return Measured({**values, "judged": "outputs of the test split"}, arrays)


def first_of_each_class(labels: Tensor, classes: int, count: int) -> Tensor:
    """Rows of the first `count` samples of each class, class after class."""
    return torch.cat([(labels == label).nonzero().squeeze(1)[:count] for label in range(classes)])


def confusing_rows(cell: MeasurementCell, oracle: Classifier, context: MeasureContext) -> Tensor:
    """Rows of the mixup outputs where the oracle is most certain of a class with label weight 0.

    The paper selects mixup outputs that look like another digit by eye; this is our rule. The same
    rows of the other methods are shown for comparison.
    """
    outputs = _mix_test_split(dataclasses.replace(cell, method="mixup:1.0"), context)
    confidence, predicted = predict(oracle, outputs.samples).softmax(1).max(1)
    is_excluded = outputs.targets.gather(1, predicted[:, None]).squeeze(1) == 0
    order = torch.where(is_excluded, confidence, -1.0).argsort(descending=True, stable=True)
    return order[: cell.recipe["examples"]]


def _mix_test_split(cell: MeasurementCell, context: MeasureContext) -> MixedSamples:
    test = context.dataset.test
    if test is None:
        raise ReproduceError(f"{context.dataset.name} has no test split to mix.")
    return context.mix(cell, test.samples, test.labels)


def _to_bytes(images: Tensor) -> Tensor:
    return images.round().clamp(0, 255).to(torch.uint8).squeeze(1)
