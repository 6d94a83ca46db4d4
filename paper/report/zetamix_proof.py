"""ZetaMix compared with the baselines on test data: results, significance, and contrast."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any, TypeAlias

from matplotlib.axes import Axes

from paper.datasets import CATALOGUE
from paper.report.artifact_report import (
    INCOMPLETE,
    INCONCLUSIVE,
    MISSED,
    NOT_RUN,
    REACHED,
    ArtifactReport,
    Verdict,
    finish,
    method_name,
)
from paper.report.tables import summary_cell
from paper.results.paper_cells import Subset, TrainingCell
from paper.results.record_store import PaperView
from zetamix.methods import parse
from zetamix_lab.metrics import METRICS, Metric, count_right, resolution
from zetamix_lab.records import RunRecord
from zetamix_lab.report import Cell, Column, Picture, Table, drawing
from zetamix_lab.report.figure import COLOURS, GREY
from zetamix_lab.report.table import MARKED, Plain, have_same_seeds, rank_marks
from zetamix_lab.statistics import (
    CONFIDENCE,
    Difference,
    Summary,
    holm,
    paired_difference,
    summarise,
)
from zetamix_lab.text import plural

ZETAMIX = parse("zetamix").full_label
# the methods in the definition of the target
BEATEN, LEVEL = ("none", "mixup:1.0", "cutmix:1.0"), "switch"
AHEAD_ON, SIGNIFICANT_ON = 5, 2
MARKS: dict[int | None, str] = {2: "*", -2: "†"}
OUTCOMES = {2: "ahead", -2: "behind"}

Measured: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""Values of the contrast by split and method."""


@dataclass(frozen=True, eq=False)
class Contest:
    """All methods on one dataset."""

    dataset: str
    subset: Subset | None
    metric: Metric
    runs: dict[str, list[RunRecord]]
    """By method."""

    @property
    def title(self) -> str:
        size = "" if self.subset is None else f" at {self.subset.train:,}"
        return f"{CATALOGUE[self.dataset].title}{size}"

    def summary(self, method: str) -> Summary | None:
        """Over seeds, at the epoch with the best validation score if there is validation."""
        values = {
            run.cell.seed: self.metric.scale((run.best or run.last)[self.metric.name])
            for run in self.runs[method]
        }
        return summarise(values) if values else None

    @cached_property
    def summaries(self) -> dict[str, Summary | None]:
        return {method: self.summary(method) for method in self.runs}

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """ZetaMix minus each other method, paired by seed, with Holm's correction over methods."""
        ours, found = self.summary(ZETAMIX), []
        for method, runs in self.runs.items():
            theirs = self.summary(method)
            if method == ZETAMIX or ours is None or theirs is None:
                continue
            name, (_, counts) = self.metric.name, count_right(runs[0].confusion)
            step = self.metric.scale(resolution(name, counts))
            found.append(
                paired_difference(
                    ZETAMIX, method, name, ours.values, theirs.values, resolution=step
                )
            )
        return {d.baseline: d for d in holm(found)}

    def score(self, method: str) -> int | None:
        """ZetaMix against a method: 1 for a better mean, 2 if significant, or the negative.

        None if they share no seed.
        """
        difference = self.differences.get(method)
        if difference is None:
            return None
        better = self.metric.sign * difference.mean
        return (better > 0) - (better < 0) + difference.significant * (1 if better > 0 else -1)

    @property
    def complete(self) -> bool:
        """Whether every method has runs, with the same seeds."""
        return have_same_seeds(self.summaries.values())


def contests_of(view: PaperView) -> list[Contest]:
    """The datasets of the comparison, in their order, with the paper's recipe."""
    cells: dict[tuple[str, Subset | None], dict[str, TrainingCell]] = {}
    for cell in view.cells:
        if isinstance(cell, TrainingCell):
            cells.setdefault((cell.dataset, cell.subset), {}).setdefault(cell.method, cell)
    return [
        Contest(
            dataset,
            subset,
            metric_of(next(iter(own.values()))),
            {method: view.store.runs_of(cell) for method, cell in own.items()},
        )
        for (dataset, subset), own in cells.items()
    ]


def metric_of(cell: TrainingCell) -> Metric:
    """The metric by which the paper compares methods on a dataset."""
    selected = cell.recipe.select
    return METRICS["error" if selected == "accuracy" else selected]


def report(view: PaperView) -> ArtifactReport:
    contests = contests_of(view)
    tables = {"zetamix": main_table(contests)}
    if any(contest.differences for contest in contests):
        tables["differences"] = _difference_table(contests)
    return ArtifactReport(_why(view, contests), tables, _verdict(contests))


def main_table(contests: Sequence[Contest]) -> Table:
    """A row per method, a column per dataset."""
    ranked = [rank_marks(contest.summaries, contest.metric.sign) for contest in contests]
    rows: list[list[Cell | Plain]] = []
    for method in contests[0].runs:
        row: list[Cell | Plain] = [method_name(method)]
        for contest, marks in zip(contests, ranked, strict=True):
            cell = summary_cell(
                contest.summaries[method], contest.metric.digits, marks.get(method, "")
            )
            row.append(replace(cell, suffix=MARKS.get(contest.score(method), "")))
        rows.append(row)
    columns = [
        Column(f"{contest.title}, {contest.metric.heading}", contest.metric.better)
        for contest in contests
    ]
    percent = f"{100 * CONFIDENCE:.0f} %"
    notes = [
        f"Test split, mean ± standard deviation over n seeds; {MARKED}; – no run yet. Lower is "
        "better for errors, higher for AUC and balanced accuracy.",
        f"{MARKS[2]} ZetaMix is significantly ahead, {MARKS[-2]} significantly behind "
        f"({percent}, paired by seed, Holm's correction over the methods).",
        "ResNet-18 from scratch, the paper's recipe for each dataset, crops and flips on CIFAR, "
        "flips on Fashion-MNIST. Results are at the epoch with the best validation score, or at "
        "the last one without a validation split. The numbers of seeds were fixed before the first "
        "run.",
    ]
    return Table([Column("method"), *columns], rows, "ZetaMix and common baselines", notes)


def readme_section(view: PaperView) -> str:
    """The datasets that have runs, as Markdown, and how many runs are missing."""
    contests = [contest for contest in contests_of(view) if any(contest.runs.values())]
    trainings = [cell for cell in view.cells if isinstance(cell, TrainingCell)]
    missing = sum(view.store.find(cell) is None for cell in trainings)
    parts = []
    if contests:
        table = main_table(contests)
        parts += [table.markdown(), " ".join(table.notes[:2])]
    if missing:
        parts.append(
            f"{missing} of the {len(trainings)} runs of this comparison have not been made yet."
        )
    else:
        parts.append(_verdict(contests).sentences[0])
    return "\n\n".join(parts)


def _difference_table(contests: Sequence[Contest]) -> Table:
    rows: list[list[Cell | Plain]] = []
    for contest in contests:
        for method, difference in contest.differences.items():
            numbers = (difference.mean, difference.low, difference.high)
            digits = contest.metric.digits
            rows.append(
                [
                    f"{contest.title}, {contest.metric.heading}",
                    method_name(method),
                    *(Cell(number, digits=digits, signed=True) for number in numbers),
                    Cell(difference.p, digits=4),
                    Cell(difference.p_holm, digits=4),
                    difference.n,
                    OUTCOMES.get(contest.score(method) or 0, "not significantly different"),
                ]
            )
    percent = f"{100 * CONFIDENCE:.0f} %"
    heads = ["dataset", "ZetaMix minus", "difference", f"{percent} low", f"{percent} high"]
    heads += ["p", "p, Holm", "n", "ZetaMix is"]
    note = "Student's t, paired by seed; Holm's correction over the methods of a dataset."
    return Table(heads, rows, "ZetaMix minus each other method", [note])


def _verdict(contests: Sequence[Contest]) -> Verdict:
    """The verdict by the target, which was set before the first run."""
    judged = [contest for contest in contests if contest.complete]
    if not judged:
        return Verdict(NOT_RUN, ["No dataset has runs of all methods with the same seeds yet."])
    worst = [min(contest.score(method) or 0 for method in BEATEN) for contest in judged]
    ahead, certain = sum(score >= 1 for score in worst), sum(score >= 2 for score in worst)
    behind = [
        f"{contest.title} ({method_name(method)})"
        for contest in judged
        for method in (*BEATEN, LEVEL)
        if contest.score(method) == -2
    ]
    level = sum((contest.score(LEVEL) or 0) >= 0 for contest in judged)
    total = len(contests)
    sentences = [
        f"ZetaMix has a better mean than no mixing, mixup and CutMix on {ahead} of "
        f"{plural(len(judged), 'dataset')} (target: {AHEAD_ON} of {total}), significantly better "
        f"than all three on {certain} (target: {SIGNIFICANT_ON}), is significantly behind one of "
        f"them or {method_name(LEVEL)} in {plural(len(behind), 'comparison')} (target: 0), and has "
        f"at least as good a mean as {method_name(LEVEL)} on {level} (target: half of them)."
    ]
    if behind:
        sentences.append(f"Significantly behind: {'; '.join(behind)}.")
    if len(judged) < total:
        sentences.append(f"{total - len(judged)} of {total} datasets lack runs of some methods.")
        return Verdict(f"{INCONCLUSIVE} {INCOMPLETE}", sentences)
    reached = ahead >= AHEAD_ON and certain >= SIGNIFICANT_ON and not behind and 2 * level >= total
    return Verdict(REACHED if reached else MISSED, sentences)


def _why(view: PaperView, contests: Sequence[Contest]) -> list[Picture]:
    """The contrast of training images with each method, and the effect of new statistics."""
    measured = {
        (cell.recipe["split"], cell.method): record.values
        for cell, record in view.measured("contrast")
        if record is not None
    }
    methods = [method for split, method in measured if split == "train"]
    if ("test", "none") not in measured or not methods:
        return []
    # the error changes most if there is little data
    shown = next((c for c in contests if c.dataset == "cifar10" and c.subset is not None), None)
    pairs = {} if shown is None else {m: _before_and_after(shown.runs[m]) for m in methods}
    pairs = {method: pair for method, pair in pairs.items() if pair}
    scaled = "; ZetaMix restores it" if ZETAMIX in methods else "; ZetaMix is not measured yet"
    caption = (
        "The contrast of CIFAR-10 training images after mixing with each method (filled), and of "
        f"test images (line); normalised pixels, before crops. Averaging reduces contrast{scaled}."
    )
    with drawing(8.6 if pairs else 5.6, 1.3 + 0.62 * len(methods)) as figure:
        ratios = (3, 2) if pairs else (1,)
        panels: Any = figure.subplots(
            1, len(ratios), sharey=True, squeeze=False, width_ratios=ratios
        )
        left = panels[0, 0]
        limit = next(cell.recipe["top"] for cell, _ in view.measured("contrast"))
        _draw_contrast(left, measured, methods, limit)
        alt = "For each method, the contrast of its training images and that of test images."
        if shown is not None and pairs:
            alt += " Right: test errors before and after new batch-norm statistics."
            _draw_new_statistics(panels[0, 1], shown.title, methods, pairs)
            caption = (
                f"Left: the{caption.removeprefix('The')} Right: the test error of ResNet-18 as "
                "trained (filled), and after its batch-norm statistics were recomputed on unmixed "
                "training images (open). If that reduces the error, training and test images "
                "differ in their statistics."
            )
        left.set_yticks([-k for k in range(len(methods))], [method_name(m) for m in methods])
        left.tick_params(axis="y", length=0)
        left.set_ylim(-len(methods) + 0.8, 0.95)
        return [finish(view, figure, "why", alt=alt, caption=caption)]


def _draw_contrast(axes: Axes, measured: Measured, methods: Sequence[str], limit: float) -> None:
    test = measured["test", "none"]
    top = max(max(values["counts"]) / sum(values["counts"]) for values in measured.values())

    def heights(values: Mapping[str, Any]) -> list[float]:
        return [0.85 * count / sum(values["counts"]) / top for count in values["counts"]]

    bins = len(test["counts"])
    places = [limit * (k + 0.5) / bins for k in range(bins)]
    for k, method in enumerate(methods):
        names = ["test images", "training images"] if k == 0 else [None, None]
        curve = [height - k for height in heights(measured["train", method])]
        axes.plot(places, [height - k for height in heights(test)], color=GREY, label=names[0])
        axes.fill_between(
            places, curve, -k, color=_colour(method), alpha=0.45, lw=0, label=names[1]
        )
        axes.axhline(-k, color="#dddddd", lw=0.6)
    axes.set(xlim=(0, limit), xlabel="standard deviation of the pixels of an image")
    axes.set_title("contrast of training images")
    axes.legend(loc="upper right")
    axes.grid(visible=False)


def _draw_new_statistics(
    axes: Axes, title: str, methods: Sequence[str], pairs: Mapping[str, Sequence[float]]
) -> None:
    for method, pair in pairs.items():
        colour, height = _colour(method), [0.3 - methods.index(method)]
        axes.plot(pair, height * 2, color=colour, lw=1.2)
        axes.plot(pair[:1], height, "o", color=colour)
        axes.plot(pair[1:], height, "o", color=colour, mfc="white")
    axes.plot([], [], "o", color=GREY, label="as trained")
    axes.plot([], [], "o", color=GREY, mfc="white", label="new batch-norm statistics")
    axes.set(xlabel=title)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    axes.set_title("test error %")
    axes.grid(visible=False, axis="y")


def _colour(method: str) -> str:
    return COLOURS[2] if method == ZETAMIX else COLOURS[0]


def _before_and_after(runs: Sequence[RunRecord]) -> list[float]:
    """Mean test errors of the last epoch: as trained, and with new batch-norm statistics."""
    both = [
        (run.last["error"], run.extra["new_bn"]["error"]) for run in runs if "new_bn" in run.extra
    ]
    return [100 * fmean(values) for values in zip(*both, strict=True)]
