"""Measure the outputs of every method, and local dimension over a range of γ."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from zetamix.data import Dataset, Split
from zetamix.experiments.inspect.bench import Bench
from zetamix.experiments.inspect.oracle import Oracle, shrink, train_oracle
from zetamix.experiments.inspect.originals import Originals, choose_originals
from zetamix.measure import Estimate
from zetamix.methods import Method, parse
from zetamix.results.inspection import Inspection, InspectionError, Settings, Subject

Progress: TypeAlias = Callable[[str, int, int], None]

# samples that are scaled down together for the oracle
AT_ONCE = 1024


def inspect_dataset(
    dataset: Dataset,
    methods: Sequence[Method],
    settings: Settings | None = None,
    *,
    oracle: Oracle | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Inspection:
    """Mix a dataset's training samples with each method and measure what comes out.

    oracle: a classifier of your own; None trains one on samples that are not judged.
    progress: called with a stage in words, the steps done in it, and the steps to do.
    """
    settings = settings or Settings()
    tell = progress or (lambda stage, done, total: None)
    place = torch.device(device)
    # originals are measured in any case
    methods = [method for method in methods if method.name != "none"]
    if not methods:
        raise InspectionError("Expected a method that mixes, such as mixup or zeta:2.8, got none.")
    originals = choose_originals(dataset, settings, place)
    _try_out(methods, originals)
    # one class alone is never mistaken for another
    if oracle is None and settings.oracle != "none" and dataset.num_classes > 1:
        oracle = _train(dataset, originals, settings, place, tell)
    bench = Bench(dataset.num_classes, originals, settings, oracle)
    bench.locate(lambda done, total: tell("comparing originals", done, total))
    *subjects, original = _measure_all(bench, [*methods, parse("none")], tell)
    sweep = _sweep(bench, settings.gammas, tell)
    return Inspection(
        dataset=dataset.name,
        classes=dataset.classes,
        shape=dataset.shape,
        notes=dataset.notes,
        settings=settings,
        samples=len(originals.labels),
        judged=originals.unseen,
        neighbours=bench.neighbours,
        oracle=oracle,
        original=original,
        subjects=tuple(subjects),
        sweep=tuple(sweep),
    )


def _measure_all(bench: Bench, methods: Sequence[Method], tell: Progress) -> list[Subject]:
    stage, done, total = "measuring methods", 0, Bench.STEPS * len(methods)

    def step() -> None:
        nonlocal done
        done += 1
        tell(stage, done, total)

    tell(stage, done, total)
    return [bench.measure(method, step) for method in methods]


def _sweep(bench: Bench, gammas: Sequence[float], tell: Progress) -> list[tuple[float, Estimate]]:
    found = []
    for done, gamma in enumerate(gammas):
        tell("local dimension over γ", done, len(gammas))
        found.append((gamma, bench.dimension(parse(f"zeta:{gamma}"))))
    tell("local dimension over γ", len(gammas), len(gammas))
    return found


def _try_out(methods: Sequence[Method], originals: Originals) -> None:
    """A method that cannot mix this data is told before an oracle is trained."""
    few = Originals(originals.samples[:4], originals.labels[:4], 4, originals.rest)
    classes = int(originals.labels.max()) + 1
    for method in methods:
        Bench(classes, few, Settings(batch=4), None).outputs(method)


def _train(
    dataset: Dataset, originals: Originals, settings: Settings, device: torch.device, tell: Progress
) -> Oracle:
    train, size = dataset.train, settings.oracle_size
    other, labels = [_small(train, originals.rest, size)], [train.labels[originals.rest]]
    if dataset.val is not None:
        other.append(_small(dataset.val, torch.arange(len(dataset.val)), size))
        labels.append(dataset.val.labels)
    unseen, name = dataset.test, "test split"
    if unseen is None:
        rows = slice(0, originals.unseen)
        held_out = originals.samples[rows], originals.labels[rows].cpu()
        name = "the originals that are judged"
    else:
        held_out = unseen.samples, unseen.labels
    try:
        return train_oracle(
            torch.cat(other),
            torch.cat(labels),
            held_out,
            dataset.num_classes,
            model=settings.oracle,
            epochs=settings.oracle_epochs,
            seed=settings.seed,
            device=device,
            size=size,
            unseen_name=name,
            watch=lambda done, total: tell("training the oracle", done, total),
        )
    except ValueError as error:
        raise InspectionError(f"{settings.oracle} cannot be the oracle: {error}") from error


def _small(split: Split, rows: Tensor, size: int) -> Tensor:
    """Samples for the oracle, part by part: in full size all of them may not fit into memory."""
    return torch.cat([shrink(split.take(part), size) for part in torch.split(rows, AT_ONCE)])
