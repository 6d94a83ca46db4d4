"""The table of times: CPU and GPU apart, the paper's values beside ours."""

import math

from zetamix.data import CATALOGUE
from zetamix.provenance import machine_summary
from zetamix.records import Measurement
from zetamix.report import Cell, Column, Table
from zetamix.report.paper.view import NOT_RUN, Answer, Drawn, View, agreement, method_name
from zetamix.results import paper_values as paper

# a column and a row of the paper's table
BATCH, PAPER_LOCAL = "batch_tensor", "local_synthetic_instances"
LOCAL, LISTING, ORIGINAL = "local synthetic instances", "paper listing", "mixup, original"
# an epoch may take this much longer and still count as no longer: repeated ones differ by 1 %
LONGER = 1.02
PAPER_NAMES = {"mixup:1.0": "mixup", "zeta:2.8": "zeta_mixup"}
# what was measured: (what it is, the paper's row)
CONTENDERS = {
    "copy": ("a plain copy of the batch", None),
    "zetamix Mixup": ("mixup, zetamix", "mixup"),
    "mixup, original": ("mixup, as its authors wrote it", "mixup"),
    "zetamix": ("ζ-mixup, zetamix", "zeta_mixup"),
    "paper listing": ("ζ-mixup, the paper's listing and its weights", "zeta_mixup"),
    LOCAL: ("local synthetic instances, zetamix", PAPER_LOCAL),
}


def draw(view: View) -> Drawn:
    tables = {"training": _training(view), "batch": _batch(view)}
    return Drawn(tables=tables, verdict=_verdict(view), answer=_answer(view))


def _training(view: View) -> Table:
    benchmarks = paper.read()["tables"]["benchmarks"]
    rows: list[list[Cell | str]] = []
    machines = []
    for cell, record in view.measured("training-time"):
        printed = benchmarks["values_seconds"].get(PAPER_NAMES.get(cell.method, ""), {})
        stated = printed.get(cell.dataset)
        epochs = benchmarks["columns"][cell.dataset]["epochs"]
        minutes = None if stated is None else stated["mean"] / 60
        spread = None if stated is None else stated["std"] / 60
        rows.append(
            [
                CATALOGUE[cell.dataset].title,
                method_name(cell.method),
                Cell(minutes, error=spread, digits=2),
                *_own_training(record, epochs, minutes),
                cell.device or "",
            ]
        )
        machines += [machine_summary(record.machine)] if record is not None else []
    columns = [
        Column("dataset"),
        Column("method"),
        Column("paper, minutes", "mean ± standard deviation of a whole training"),
        Column("ours, minutes", "an epoch times the paper's number of epochs"),
        Column("ours − paper, minutes"),
        Column("ours, seconds an epoch", "mean ± standard deviation over epochs"),
        Column("device"),
    ]
    notes = [
        f"Paper: {benchmarks['hardware']}. Ours: a model that trains alone; minutes are epochs of "
        "the paper's table of times (200, 200, 80) times an epoch of training, without evaluation; "
        f"n: epochs that were timed. Up to {LONGER:g} times mixup's time counts as no longer.",
        *_machines(machines),
    ]
    return Table(columns, rows, "Training time", notes)


def _own_training(
    record: Measurement | None, epochs: int, paper_minutes: float | None
) -> list[Cell]:
    if record is None:
        return [Cell(None), Cell(None), Cell(None)]
    mean, spread = record.values["epoch_s"], record.values["epoch_s_std"]
    minutes = mean * epochs / 60
    difference = None if paper_minutes is None else minutes - paper_minutes
    return [
        Cell(minutes, error=spread * epochs / 60, digits=2),
        Cell(difference, digits=2, signed=True),
        Cell(mean, error=spread, n=record.values["timed"], digits=3),
    ]


def _batch(view: View) -> Table:
    printed = paper.read()["tables"]["benchmarks"]["values_seconds"]
    rows: list[list[Cell | str]] = []
    machines = []
    shape = ""
    for cell, record in view.measured("batch-time"):
        shape = " × ".join(map(str, cell.recipe["shape"]))
        found = (
            {}
            if record is None
            else {(row["contender"], row["mode"]): row for row in record.values["rows"]}
        )
        machines += [machine_summary(record.machine)] if record is not None else []
        wanted = list(found) or [(name, "eager") for name in CONTENDERS]
        for name, mode in sorted(wanted, key=lambda key: (list(CONTENDERS).index(key[0]), key[1])):
            what, theirs = CONTENDERS[name]
            # the paper's are of a GPU
            known = theirs is not None and cell.device == "cuda"
            stated = printed[theirs][BATCH] if known else None
            theirs_us = Cell(None)
            if stated is not None:
                theirs_us = Cell(1e6 * stated["mean"], error=1e6 * stated["std"], digits=1)
            row = found.get((name, mode), {})
            ours = row.get("median_us")
            difference = None
            if stated is not None and ours is not None:
                difference = ours - 1e6 * stated["mean"]
            quantiles = [Cell(row.get(key), digits=1) for key in ("p20_us", "p80_us")]
            numbers = [Cell(ours, digits=1), Cell(difference, digits=1, signed=True), *quantiles]
            rows.append([cell.device or "", what, mode, theirs_us, *numbers])
    names = ("device", "what", "mode", "paper, µs", "ours, µs", "ours − paper, µs", "p20", "p80")
    notes = [
        "Ours: median, and the 20 and 80 % quantiles, of a call that draws, mixes samples and "
        "mixes labels; eager is a plain call, graph the replay of a captured CUDA graph. The "
        "paper's values are of its own GPU, its local synthetic instances of other code. On two "
        "CPU cores times of this size move by up to a factor of two with page faults. The paper's "
        "listing takes the weights as given; ours draws them on the host, a permutation for each "
        "output, and copies them to the device.",
        *_machines(machines),
    ]
    return Table([Column(name) for name in names], rows, f"One batch of {shape}, float32", notes)


def _machines(lines: list[str]) -> list[str]:
    return [f"Measured on {line}." for line in dict.fromkeys(lines)]


def _eager(record: Measurement) -> dict[str, float]:
    """Contender: µs of a plain call."""
    rows = record.values["rows"]
    return {row["contender"]: row["median_us"] for row in rows if row["mode"] == "eager"}


def _batches(view: View) -> dict[str, dict[str, float]]:
    """Device: what was measured there."""
    found = view.measured("batch-time")
    return {cell.device or "": _eager(record) for cell, record in found if record is not None}


def _ratios(view: View) -> dict[str, tuple[float, float]]:
    """Dataset: an epoch with ζ-mixup, in epochs with mixup, and its standard error."""
    ratios = {}
    for dataset in dict.fromkeys(cell.dataset for cell, _ in view.measured("training-time")):
        found = {
            cell.method: record.values
            for cell, record in view.measured("training-time", dataset)
            if record is not None
        }
        if {"mixup:1.0", "zeta:2.8"} <= set(found):
            zeta, mixup = found["zeta:2.8"], found["mixup:1.0"]
            ratio = zeta["epoch_s"] / mixup["epoch_s"]
            parts = [
                values["epoch_s_std"] / values["epoch_s"] / math.sqrt(values["timed"])
                for values in (zeta, mixup)
            ]
            ratios[dataset] = ratio, ratio * math.hypot(*parts)
    return ratios


def _paper_ratio(column: str, method: str = "zeta_mixup", other: str = "mixup") -> float:
    """How many times as long as another a method takes in a column of the paper's table."""
    printed = paper.read()["tables"]["benchmarks"]["values_seconds"]
    return float(printed[method][column]["mean"] / printed[other][column]["mean"])


def _verdict(view: View) -> list[str]:
    words = []
    for device, us in _batches(view).items():
        listing, mixup, zeta, local = (us[name] for name in (LISTING, ORIGINAL, "zetamix", LOCAL))
        words.append(
            f"{device.upper()}, one batch: ζ-mixup by the paper's own listing, with the weights "
            f"that it leaves out drawn as its equation says, takes {listing:,.0f} µs and mixup as "
            f"its authors wrote it {mixup:,.0f}, so ζ-mixup takes "
            f"{listing / mixup:.2f} times as long; in the paper, on a GPU, "
            f"{_paper_ratio(BATCH):.2f} times. Our ζ-mixup takes {zeta:,.0f}, our mixup "
            f"{us['zetamix Mixup']:,.0f}, local synthetic instances {local:,.0f} "
            f"({local / zeta:.1f} times our ζ-mixup; the paper has "
            f"{_paper_ratio(BATCH, PAPER_LOCAL, 'zeta_mixup'):.0f}, with other code)."
        )
    words += [
        f"{CATALOGUE[dataset].title}: an epoch with ζ-mixup takes {ratio:.3f} ± {error:.3f} times "
        "as long as one with mixup (± standard error over the epochs of one run each); the paper "
        f"has {_paper_ratio(dataset):.3f}."
        for dataset, (ratio, error) in _ratios(view).items()
    ]
    return words or ["Nothing of these tables has been measured yet."]


def _answer(view: View) -> Answer:
    """The paper: ζ-mixup of a batch is faster than mixup, and training takes no longer."""
    faster = {name: us[LISTING] < us[ORIGINAL] for name, us in _batches(view).items()}
    ratios = _ratios(view)
    held = [*faster.values(), *(ratio <= LONGER for ratio, _ in ratios.values())]
    if not held:
        return Answer(NOT_RUN)
    parts = []
    if ratios:
        most, error = max(ratios.values())
        parts.append(
            f"An epoch with ζ-mixup takes {most:.3f} ± {error:.3f} times as long as one with mixup."
        )
    pairs = [
        f"{'faster' if is_faster else 'slower'} on {name.upper()}"
        for name, is_faster in faster.items()
    ]
    if pairs:
        parts.append(
            "For one batch the paper's listing, with the drawing of weights that it leaves out, is "
            f"beside mixup {' and '.join(pairs)}; the paper has it faster."
        )
    return Answer(agreement(held), " ".join(parts))
