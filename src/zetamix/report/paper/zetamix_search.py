"""The whole search for ZetaMix's default: every setting, what each change does, and the choice."""

from collections.abc import Mapping
from statistics import fmean

from zetamix.data import CATALOGUE
from zetamix.measure.statistics import paired_difference, summarise
from zetamix.methods import parse
from zetamix.records import RunRecord
from zetamix.report import Cell, Column, Table
from zetamix.report.paper.artifact_report import (
    CHOSEN,
    INCONCLUSIVE,
    ArtifactReport,
    Verdict,
    method_name,
)
from zetamix.report.paper.tables import summary_cell
from zetamix.report.table import Plain
from zetamix.results import zetamix_search as search
from zetamix.results.paper_cells import Subset
from zetamix.results.record_store import PaperView
from zetamix.text import plural

RULE = (
    "Each round runs the better settings of the rounds before with another seed or dataset "
    "(successive halving), and the baselines that are ahead of the last of them. The relative "
    "error of a run is its error divided by the mean error of all runs with that dataset; the "
    "setting of ZetaMix with the smallest mean over all datasets and seeds is the default."
)
DATA = (
    "Validation error %, mean ± standard deviation over n seeds, on 5,000 images of the training "
    "split; the test split is not used. ResNet-18, the paper's recipe of 200 epochs, with crops "
    "and flips on CIFAR and flips on Fashion-MNIST. Ranks are over the settings run with that "
    "dataset."
)


def report(view: PaperView) -> ArtifactReport:
    cells = {cell.dataset: cell for cell in view.trainings}
    runs = search.read_runs(view.store, cells)
    errors = search.read_errors(view.store, cells)
    titles = {
        dataset: f"{CATALOGUE[dataset].title} at {_subset(cell.subset)}"
        for dataset, cell in cells.items()
    }
    tables = {"settings": _settings(runs, errors, titles), "changes": _changes(errors, titles)}
    return ArtifactReport((), tables, _verdict(errors, titles) if view.records else Verdict())


def setting_name(label: str) -> str:
    """The name of a setting in tables.

    >>> setting_name(search.spell({"keep_variance": "no", "p": 0.8}))
    '2 sources, γ 0–4, variance not kept, 50 % pasted, p = 0.8'
    """
    method = parse(label)
    if method.name != "zetamix":
        return "CutMix, one box per sample" if "per=sample" in label else method_name(label)
    low, high = method.option("gamma")
    parts = [f"{method.sources} sources", f"γ {low:g}–{high:g}"]
    parts.append(f"variance {'' if method.option('keep_variance') else 'not '}kept")
    parts.append(f"{100 * method.option('paste'):.0f} % pasted")
    parts += [f"{key} = {method.option(key):g}" for key in ("p", "until") if method.option(key) < 1]
    return ", ".join(parts)


def _subset(subset: Subset | None) -> str:
    return "full size" if subset is None else f"{subset.train:,}"


def _settings(
    runs: Mapping[str, Mapping[tuple[str, int], RunRecord]],
    errors: search.Errors,
    titles: Mapping[str, str],
) -> Table:
    """Every setting, those that came furthest first."""
    pairs = sorted({pair for own in errors.values() for pair in own})
    ordered = [m for m in search.rank(search.METHODS, errors, pairs) if errors[m]]
    means = {
        dataset: {
            method: 100 * fmean(values)
            for method, own in errors.items()
            if (values := [error for (name, _), error in own.items() if name == dataset])
        }
        for dataset in titles
    }
    ranks = {
        dataset: {method: k for k, method in enumerate(sorted(own, key=own.__getitem__), 1)}
        for dataset, own in means.items()
    }
    rows: list[list[Cell | Plain]] = []
    for method in ordered:
        row: list[Cell | Plain] = [setting_name(method)]
        for dataset in titles:
            own = {s: 100 * e for (name, s), e in errors[method].items() if name == dataset}
            row.append(summary_cell(summarise(own) if own else None, 2))
            row.append(Cell(ranks[dataset].get(method)))
        places = [own[method] for own in ranks.values() if method in own]
        complete = len(places) == len(titles)
        row.append(Cell(fmean(places) if complete else None, digits=1))
        relative = fmean(search.relative_errors(method, errors, pairs).values())
        row.append(Cell(relative if complete else None, digits=3))
        row.append(_effect_of_new_statistics(list(runs[method].values())))
        rows.append(row)
    columns = [Column("setting")]
    for title in titles.values():
        columns += [Column(title), Column("rank")]
    columns += [Column("mean rank"), Column("relative error")]
    columns.append(
        Column("new BN statistics", "mean change of the error in points, over all its runs")
    )
    caption = f"All {len(search.METHODS)} settings of the search"
    notes = [
        DATA,
        RULE,
        "New BN statistics: by how many points the error changes when batch-norm statistics are "
        "taken anew on unmixed training images after training.",
    ]
    return Table(columns, rows, caption, notes)


def _effect_of_new_statistics(runs: list[RunRecord]) -> Cell:
    changes = [
        100 * (run.extra["new_bn"]["error"] - run.last["error"])
        for run in runs
        if "new_bn" in run.extra
    ]
    return Cell(fmean(changes) if changes else None, digits=2, signed=True)


def _changes(errors: search.Errors, titles: Mapping[str, str]) -> Table:
    """What one change of the centre does, paired by seed."""
    centre = errors[search.spell({})]
    rows: list[list[Cell | Plain]] = []
    for change in search.SINGLE_CHANGES:
        own = errors[search.spell(change)]
        row: list[Cell | Plain] = [", ".join(f"{key}={value}" for key, value in change.items())]
        for dataset in titles:
            both = {
                seed: 100 * (error - centre[name, seed])
                for (name, seed), error in own.items()
                if name == dataset and (name, seed) in centre
            }
            summary = summarise(both) if both else None
            row.append(
                Cell(None)
                if summary is None
                else Cell(summary.mean, error=summary.sd, n=summary.n, digits=2, signed=True)
            )
        rows.append(row)
    columns = [Column("change"), *(Column(title) for title in titles.values())]
    note = (
        f"Points of validation error, the changed setting minus {setting_name(search.spell({}))}, "
        "with the same seeds; mean ± standard deviation over n seeds. Negative: the change helps."
    )
    return Table(columns, rows, "One change at a time", [note])


def _verdict(errors: search.Errors, titles: Mapping[str, str]) -> Verdict:
    choice = search.choose(errors)
    total = len(search.ROUNDS)
    if choice is None:
        return Verdict(INCONCLUSIVE, ["The first round of the search is not complete."])
    complete = choice.rounds == total
    relative = fmean(search.relative_errors(choice.method, errors, choice.pairs).values())
    sentences = [
        f"After {choice.rounds} of {plural(total, 'round')} the best setting of ZetaMix is "
        f"{setting_name(choice.method)}, with a relative error of {relative:.3f} over "
        f"{plural(len(choice.pairs), 'run')} of each setting."
    ]
    apart, close = _told_apart(choice, errors)
    if close:
        sentences.append(f"Not told apart from it (95 %, paired): {'; '.join(close)}.")
    if apart:
        sentences.append(f"Significantly worse: {'; '.join(apart)}.")
    if parse(choice.method).full_label != parse("zetamix").full_label:
        sentences.append(
            f"The default of ZetaMix is another: {setting_name(parse('zetamix').full_label)}."
        )
    return Verdict(CHOSEN if complete else INCONCLUSIVE, sentences)


def _told_apart(choice: search.Choice, errors: search.Errors) -> tuple[list[str], list[str]]:
    """Names of the other finalists: those that are significantly worse, and the rest."""

    def relative(method: str) -> dict[int, float]:
        found = search.relative_errors(method, errors, choice.pairs)
        return dict(enumerate(found.values()))

    apart, close = list[str](), list[str]()
    for method in choice.finalists:
        if method == choice.method:
            continue
        found = paired_difference(
            method, choice.method, "error", relative(method), relative(choice.method)
        )
        worse = found is not None and found.excludes_zero and found.mean > 0
        (apart if worse else close).append(setting_name(method))
    return apart, close
