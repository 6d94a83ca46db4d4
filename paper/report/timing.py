"""The table of times: CPU and GPU separately, the paper's values and ours."""

import math
from typing import Any

from paper.datasets import CATALOGUE
from paper.report.artifact_report import ArtifactReport, Verdict, method_name, status_of
from paper.results import paper_values as paper
from paper.results.record_store import PaperView
from zetamix_lab.report import Cell, Column, Table
from zetamix_lab.report.table import Plain

# a column and a row of the paper's table
BATCH, PAPER_LOCAL = "batch_tensor", "local_synthetic_instances"
OURS, OUR_MIXUP = "zetamix ZetaMixup", "zetamix Mixup"
LOCAL, LISTING, ORIGINAL = "local synthetic instances", "paper listing", "mixup, original"
# up to this factor an epoch counts as no longer, because repeated epochs differ by 1 %
TOLERANCE = 1.02
PAPER_ROWS = {"mixup:1.0": "mixup", "zeta:2.8": "zeta_mixup"}
# contender: (description, row of the paper's table)
CONTENDERS = {
    "copy": ("a plain copy of the batch", None),
    OUR_MIXUP: ("mixup, zetamix", "mixup"),
    ORIGINAL: ("mixup, its authors' code", "mixup"),
    OURS: ("ζ-mixup, zetamix", "zeta_mixup"),
    LISTING: ("ζ-mixup, the paper's listing and its weights", "zeta_mixup"),
    LOCAL: ("local synthetic instances, zetamix", PAPER_LOCAL),
}


def report(view: PaperView) -> ArtifactReport:
    tables = {"training": _training_table(view)}
    if view.measurements("batch-time"):
        tables["batch"] = _batch_table(view)
    return ArtifactReport(tables=tables, verdict=_verdict(view))


def _benchmarks() -> dict[str, Any]:
    benchmarks: dict[str, Any] = paper.read()["tables"]["benchmarks"]
    return benchmarks


def _training_table(view: PaperView) -> Table:
    benchmarks = _benchmarks()
    rows: list[list[Cell | Plain]] = []
    for cell, record in view.measured("training-time"):
        printed = benchmarks["values_seconds"].get(PAPER_ROWS.get(cell.method, ""), {})
        theirs = _scaled(printed.get(cell.dataset), 1 / 60, digits=2)
        ours = seconds = Cell(None)
        if record is not None:
            mean, deviation = record.values["epoch_s"], record.values["epoch_s_std"]
            epochs = benchmarks["columns"][cell.dataset]["epochs"]
            ours = _scaled({"mean": mean, "std": deviation}, epochs / 60, digits=2)
            seconds = Cell(mean, error=deviation, n=record.values["timed"], digits=3)
        names = CATALOGUE[cell.dataset].title, method_name(cell.method)
        rows.append([*names, theirs, ours, _difference(ours, theirs), seconds, cell.device])
    columns = [
        Column("dataset"),
        Column("method"),
        Column("paper, minutes", "mean ± standard deviation of a whole training"),
        Column("ours, minutes", "time per epoch × the paper's number of epochs"),
        Column("ours − paper, minutes"),
        Column("ours, seconds per epoch", "mean ± standard deviation over epochs"),
        Column("device"),
    ]
    note = (
        f"Paper: {benchmarks['hardware']}. Ours: a single model; minutes are the epochs of the "
        "paper's table of times (200, 200, 80) × the time of an epoch without evaluation; n: "
        f"epochs timed. Up to {TOLERANCE:g} × the time of mixup counts as no longer."
    )
    return Table(columns, rows, "Training time", [note])


def _scaled(value: dict[str, float] | None, scale: float, digits: int) -> Cell:
    """A mean ± standard deviation in another unit."""
    if value is None:
        return Cell(None)
    return Cell(scale * value["mean"], error=scale * value["std"], digits=digits)


def _difference(ours: Cell, theirs: Cell) -> Cell:
    if not isinstance(ours.value, float) or not isinstance(theirs.value, float):
        return Cell(None)
    return Cell(ours.value - theirs.value, digits=ours.digits, signed=True)


def _batch_table(view: PaperView) -> Table:
    printed = _benchmarks()["values_seconds"]
    rows: list[list[Cell | Plain]] = []
    shape = ""
    for record in view.measurements("batch-time"):
        shape = " × ".join(map(str, record.recipe["shape"]))
        device = record.recipe["device"]
        for values in sorted(record.values["rows"], key=_order):
            description, paper_row = CONTENDERS[values["contender"]]
            # the paper measured on a GPU
            is_comparable = paper_row is not None and device == "cuda"
            theirs = _scaled(printed[paper_row][BATCH] if is_comparable else None, 1e6, digits=1)
            ours, *quantiles = (
                Cell(values[key], digits=1) for key in ("median_us", "p20_us", "p80_us")
            )
            numbers = theirs, ours, _difference(ours, theirs), *quantiles
            rows.append([device, description, values["mode"], *numbers])
    heads = ("device", "method", "mode", "paper, µs", "ours, µs", "ours − paper, µs", "p20", "p80")
    note = (
        "Ours: median, and 20 % and 80 % quantiles, of a call that draws the plan and mixes "
        "samples and labels; eager: a plain call, graph: the replay of a captured CUDA graph. The "
        "paper measured on its own GPU, and local synthetic instances with other code. Its "
        "listing takes the weights as an argument; here they are drawn on the host and copied to "
        "the device."
    )
    return Table([Column(head) for head in heads], rows, f"One batch of {shape}, float32", [note])


def _order(row: dict[str, Any]) -> tuple[int, str]:
    return list(CONTENDERS).index(row["contender"]), row["mode"]


def _paper_ratio(column: str) -> float:
    """Time of ζ-mixup divided by that of mixup."""
    printed = _benchmarks()["values_seconds"]
    return float(printed["zeta_mixup"][column]["mean"] / printed["mixup"][column]["mean"])


def _ratio(zeta: dict[str, Any], mixup: dict[str, Any]) -> tuple[float, float]:
    """Time of an epoch with ζ-mixup divided by mixup's, and its standard error."""
    ratio = zeta["epoch_s"] / mixup["epoch_s"]
    relative = [v["epoch_s_std"] / v["epoch_s"] / math.sqrt(v["timed"]) for v in (zeta, mixup)]
    return ratio, ratio * math.hypot(*relative)


def _verdict(view: PaperView) -> Verdict:
    """The paper: ζ-mixup of a batch is faster than mixup, and training takes no longer."""
    claims, sentences = [], []
    for dataset in dict.fromkeys(cell.dataset for cell, _ in view.measured("training-time")):
        measured = view.measured("training-time", dataset)
        epochs = {cell.method: record.values for cell, record in measured if record is not None}
        if {"mixup:1.0", "zeta:2.8"} <= set(epochs):
            ratio, error = _ratio(epochs["zeta:2.8"], epochs["mixup:1.0"])
            claims.append(ratio <= TOLERANCE)
            sentences.append(
                f"{CATALOGUE[dataset].title}: an epoch with ζ-mixup takes {ratio:.3f} ± "
                f"{error:.3f} times as long as with mixup (± standard error over epochs); the "
                f"paper's ratio is {_paper_ratio(dataset):.3f}."
            )
    for record in view.measurements("batch-time"):
        us = {r["contender"]: r["median_us"] for r in record.values["rows"] if r["mode"] == "eager"}
        claims.append(us[LISTING] < us[ORIGINAL])
        sentences.append(
            f"{record.recipe['device'].upper()}, one batch: the paper's listing of ζ-mixup, with "
            f"its weights drawn, takes {us[LISTING] / us[ORIGINAL]:.2f} times as long as the mixup "
            f"of its authors; the paper's ratio, on a GPU, is {_paper_ratio(BATCH):.2f}. zetamix: "
            f"ζ-mixup takes {us[OURS] / us[OUR_MIXUP]:.2f} times as long as mixup."
        )
    return Verdict(status_of(claims), [" ".join(sentences)]) if claims else Verdict()
