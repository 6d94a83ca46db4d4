"""The report of a comparison: tables, one HTML page, and JSON, CSV, Markdown and LaTeX."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from zetamix.methods import display_name
from zetamix_lab.atomic_io import json_safe, read_json, write_json, write_text
from zetamix_lab.comparison import Comparison, metric_of
from zetamix_lab.metrics import BALANCED
from zetamix_lab.provenance import machine_summary
from zetamix_lab.report.compare_figures import draw_figures
from zetamix_lab.report.compare_text import (
    LEVEL,
    Summary,
    describe_terms,
    summarise,
)
from zetamix_lab.report.page import Block, Fold, Section, render_page
from zetamix_lab.report.table import Cell, Column, Table, latex_text, markdown_text
from zetamix_lab.statistics import CONFIDENCE
from zetamix_lab.text import join, plural

SCHEMA = "zetamix/compare/2"
# of more classes, those that are recognised worst are shown
MAX_CLASSES = 50
# the folders of an absolute path, which are nobody's business
FOLDERS = re.compile(r"(?<![\w.:/])(?:[A-Za-z]:)?[/\\](?:[^/\\\s'\",:;]+[/\\])+(?=[^/\\\s'\"])")


def write_report(comparison: Comparison, out: Path, machine: Mapping[str, str]) -> Path:
    """Write report.html, results.json, .csv, .md, .tex and figures/; return the page's path.

    machine: the machine and the command, from `zetamix_lab.provenance.machine_info`.
    """
    machine = without_folders(dict(machine))
    found = summarise(comparison, machine["command"])
    found, pictures = replace(found, **without_folders(vars(found))), draw_figures(comparison)
    for picture in pictures.values():
        picture.save(out / "figures")
    tables = [main_table(comparison)]
    if comparison.compared:
        tables += [difference_table(comparison, name) for name in comparison.tested]
    write_json(out / "results.json", json_safe(as_dict(comparison, found, machine)))
    write_text(out / "results.csv", wide_runs(comparison).to_csv(index=False))
    write_text(out / "results.md", _markdown(comparison, found, tables, machine))
    write_text(out / "results.tex", _latex(comparison, tables))
    first: list[Block] = [*_kept(pictures.get("differences")), tables[0]]
    folds: list[tuple[str, list[Block]]] = [
        ("The result in detail", [f"{heading}. {text}" for heading, text in found.details]),
        ("Differences", [*tables[1:]]),
        ("Learning curves", _kept(pictures.get("curves"))),
        ("Classes", _kept(class_table(comparison), pictures.get("confusion"))),
        ("Training inputs", _kept(pictures.get("outputs"))),
        ("How it was measured", [*describe_method(comparison)]),
    ]
    folded = [Fold(title, blocks) for title, blocks in folds if blocks]
    page = out / "report.html"
    html = render_page(
        _title(comparison), [Section("", first), Section("", folded)], machine=machine, lead=found
    )
    write_text(page, html)
    return page


def _kept(*blocks: Block | None) -> list[Block]:
    """Those that there are."""
    return [block for block in blocks if block is not None]


def without_folders(value: Any) -> Any:
    """A copy in which every absolute path is its last part, also within texts.

    >>> without_folders({"command": "zetamix compare --data /home/ann/photos --set a=1/2"})
    {'command': 'zetamix compare --data photos --set a=1/2'}
    """
    if isinstance(value, dict):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(inner) for inner in value]
    return FOLDERS.sub("", value) if isinstance(value, str) else value


def describe_replaced(comparison: Comparison, out: Path) -> str:
    """A note about an earlier report in this folder that a report of this comparison replaces."""
    if comparison.dataset is None or comparison.recipe is None:
        return ""
    try:
        earlier = read_json(out / "results.json")
        recipe, methods = earlier["recipe"], earlier["methods"]
        before = earlier["dataset"]["fingerprint"], recipe
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    now = without_folders(json_safe(comparison.recipe.as_dict()))
    if before != (comparison.dataset.fingerprint, now):
        shape = " × ".join(map(str, earlier["dataset"]["shape"]))
        return (
            f"It replaces a report with other data or settings ({recipe['model']}, "
            f"{recipe['epochs']} epochs, samples of {shape}), whose runs are kept. To keep both "
            "reports, use another --out."
        )
    lost = [label for label in methods if label not in comparison.methods]
    if not lost:
        return ""
    return (
        f"It replaces a report that also had {join(lost)}. Their runs are kept: add them to "
        "--methods to include them."
    )


# tables


def main_table(comparison: Comparison) -> Table:
    """Mean ± standard deviation of every metric for every method."""
    first = comparison.baselines[0]
    tests = comparison.tests.set_index(["baseline", "method", "metric"])
    columns = [Column("method")]
    for name in comparison.metrics:
        metric = metric_of(name)
        columns.append(Column(metric.heading, f"{metric.title}; {metric.better}"))
    columns.append(Column("seeds", "finished runs of the method"))
    rows, marked = [], False
    for label in comparison.methods:
        row: list[Cell | int | str] = [display_name(label)]
        for name in comparison.metrics:
            metric, own = metric_of(name), comparison.summary.loc[(label, name)]
            key = first, label, name
            test = tests.loc[key] if key in tests.index else None
            best = test is not None and test["significant"] and metric.sign * test["mean"] > 0
            values = comparison.values(label, name)
            row.append(
                Cell(
                    metric.scale(own["mean"]),
                    error=metric.scale(own["sd"]) if own["n"] > 1 else None,
                    digits=metric.digits,
                    mark="best" if best else "",
                    note=", ".join(f"seed {k}: {metric.number(v)}" for k, v in values.items()),
                )
            )
            marked = marked or best
        rows.append([*row, int(comparison.summary.loc[(label, comparison.primary), "n"])])
    notes = ["Mean ± standard deviation over seeds."]
    if marked:
        notes[0] += f" Bold: significantly better than {display_name(first)}."
    size = f"{comparison.test_size:,} test samples, " if comparison.test_size else ""
    caption = f"{comparison.title}: {size}after the last epoch"
    return Table(columns, rows, caption, notes + describe_terms(comparison))


def difference_table(comparison: Comparison, name: str | None = None) -> Table:
    """Differences from each baseline in a metric, the primary one unless named."""
    metric = metric_of(name or comparison.primary)
    unit = ", points" if metric.percent else ""
    columns, rows = [Column("method")], [[Cell(display_name(m))] for m in comparison.methods]
    for baseline in comparison.baselines:
        columns += [
            Column(f"minus {display_name(baseline)} ({LEVEL})", "mean difference and its interval"),
            Column("Holm-corrected p", "two-sided t-test, corrected over all tests"),
        ]
        tests = {test.method: test for test in comparison.differences(baseline, name).itertuples()}
        for row, label in zip(rows, comparison.methods, strict=True):
            row += _difference_cells(tests.get(label))
    better = "Positive" if metric.higher_is_better else "Negative"
    note = (
        f"Difference in {metric.title}{unit}, paired by seed, with its {LEVEL} interval "
        f"(uncorrected). {better} is better. Bold: significant after Holm's correction (p < "
        f"{1 - CONFIDENCE:.2g})."
    )
    return Table(columns, rows, f"Differences in {metric.title}", [note])


def _difference_cells(test: Any) -> list[Cell]:
    """A difference with its interval, bold if it is significant, and its p-value."""
    if test is None:
        return [Cell(None), Cell(None)]
    metric = metric_of(test.metric)
    text = metric.signed(test.mean)
    if math.isnan(test.p):
        return [Cell(f"{text} (no interval)"), Cell(None)]
    text += f" ({metric.signed(test.low)} to {metric.signed(test.high)})"
    p = "< 0.001" if test.p_holm < 0.001 else f"{test.p_holm:.3f}"
    return [Cell(text, mark="best" if test.significant else ""), Cell(p)]


def class_table(comparison: Comparison) -> Table | None:
    """Recall of every method in every class with test samples; None without confusion matrices."""
    dataset, counts = comparison.dataset, comparison.test_counts
    if dataset is None or counts is None or not comparison.records:
        return None
    recalls = [100 * comparison.recalls(label) for label in comparison.methods]
    shown, notes = counts.nonzero().flatten(), ["Mean ± standard deviation over seeds."]
    if len(shown) > MAX_CLASSES:
        total = torch.stack([values.mean(0) for values in recalls]).mean(0)
        order = shown[total[shown].argsort(stable=True)]
        notes.append(
            f"The {MAX_CLASSES} of {len(shown):,} classes with the lowest recall; results.json has "
            "all."
        )
        shown = order[:MAX_CLASSES]
    rows = []
    for k in shown.tolist():
        row: list[Cell | int | str] = [dataset.classes[k], int(counts[k])]
        for values in recalls:
            own = values[:, k]
            error = float(own.std()) if len(own) > 1 else None
            row.append(Cell(float(own.mean()), error=error, digits=1))
        rows.append(row)
    columns = [Column("class"), Column("samples", "in the test split")]
    columns += [Column(display_name(label)) for label in comparison.methods]
    return Table(columns, rows, "Per-class recall, %", notes)


# files


def wide_runs(comparison: Comparison) -> Any:
    """A line for each run, a column for each metric."""
    keys = ["method", "seed"]
    wide = comparison.runs.pivot_table(
        index=keys, columns="metric", values="value", sort=False, dropna=False
    )
    wide = wide[comparison.recorded].reindex(comparison.finished).reset_index()
    own = comparison.records
    if own:
        found = [own[key] for key in zip(wide["method"], wide["seed"], strict=True)]
        wide["wall_s"] = [record.wall_s for record in found]
        wide["step_ms"] = [record.step_ms for record in found]
        wide["key"] = [record.key for record in found]
    return wide


def as_dict(comparison: Comparison, found: Summary, machine: Mapping[str, str]) -> dict[str, Any]:
    """The content of results.json: the verdict, all statistics, every run and epoch."""
    dataset, methods = comparison.dataset, comparison.methods
    about: dict[str, Any] = {"name": comparison.title}
    if dataset is not None:
        about |= {
            "fingerprint": dataset.fingerprint,
            "origin": dataset.origin,
            "notes": list(dataset.notes),
            "classes": list(dataset.classes),
            "shape": list(dataset.shape),
            "samples": {name: len(split) for name, split in dataset.splits.items()},
        }
    values = {
        "schema": SCHEMA,
        "command": machine["command"],
        "machine": dict(machine),
        "verdict": dict(found.pairs),
        "dataset": about,
        "recipe": comparison.recipe.as_dict() if comparison.recipe else None,
        "seeds": list(comparison.seeds),
        "complete": comparison.complete,
        "failures": [
            {"method": method, "seed": seed, "reason": reason}
            for (method, seed), reason in comparison.failures.items()
        ],
        "metrics": comparison.metrics,
        "confidence": CONFIDENCE,
        "methods": {
            label: {
                name: {
                    **comparison.summary.loc[(label, name)].to_dict(),
                    "values": comparison.values(label, name),
                }
                for name in comparison.recorded
            }
            for label in methods
        },
        "differences": comparison.tests.to_dict("records"),
        "runs": [record.as_dict() for record in comparison.records.values()],
        "curves": [
            {"method": method, "seed": seed, "epochs": list(curve)}
            for (method, seed), curve in comparison.curves.items()
        ],
    }
    if dataset is not None and comparison.records:
        values["recalls"] = {
            label: dict(zip(dataset.classes, comparison.recalls(label).T.tolist(), strict=True))
            for label in methods
        }
    found_values: dict[str, Any] = without_folders(values)
    return found_values


def _markdown(
    comparison: Comparison, found: Summary, tables: list[Table], machine: Mapping[str, str]
) -> str:
    parts = [f"# {markdown_text(_title(comparison))}"]
    parts += [f"**{heading}.** {markdown_text(text)}" for heading, text in found.pairs]
    for table in tables:
        parts += [f"{markdown_text(table.caption)}.", table.markdown()]
        parts += map(markdown_text, table.notes)
    parts += [f"`{machine['command']}`", machine_summary(dict(machine))]
    return "\n\n".join(parts) + "\n"


def _latex(comparison: Comparison, tables: list[Table]) -> str:
    lines = [f"% {latex_text(_title(comparison))}; needs \\usepackage{{booktabs}}"]
    for table in tables:
        comments = [f"% {latex_text(text)}" for text in (table.caption, *table.notes)]
        lines += [*comments, table.latex(), ""]
    return "\n".join(lines)


def _title(comparison: Comparison) -> str:
    incomplete = "" if comparison.complete else " (incomplete)"
    return f"{comparison.title}: does mixing help?{incomplete}"


def describe_method(comparison: Comparison) -> list[str]:
    """How the numbers were made, and what they do not cover."""
    dataset, recipe, records = comparison.dataset, comparison.recipe, comparison.records.values()
    paragraphs = []
    if dataset is not None and recipe is not None:
        paragraphs.append(
            f"Every run: {len(dataset.train):,} training samples, {recipe.model}, {recipe.start}, "
            f"{plural(recipe.epochs, 'epoch')}, batch size {recipe.batch_size}, "
            f"{recipe.optimisation}, augmentation: {recipe.augmentation}. Recipe: {recipe.origin}. "
            "A seed fixes the initial weights and the order of the data, so that paired runs "
            "differ only in the mixing. All numbers are from the last epoch; nothing was selected "
            "on the test split."
        )
        paragraphs.append(
            f"Primary metric: {comparison.metric.title}. It is the mean average precision for "
            "several labels per sample, the AUC for two classes, the error rate if the largest "
            f"test class has at most {BALANCED:g} times the samples of the smallest, and balanced "
            "accuracy otherwise. Expected calibration error: 15 bins of equal width."
        )
    paragraphs.append(_describe_intervals(comparison))
    if records:
        lines = Counter(machine_summary(record.machine) for record in records)
        machines = "; ".join(f"{plural(count, 'run')} on {line}" for line, count in lines.items())
        minutes = sum(record.wall_s for record in records) / 60
        where = f" ({comparison.description})" if comparison.description else ""
        paragraphs.append(
            f"Trained{where}: {machines}. The times of all runs add up to {minutes:.1f} minutes."
        )
    notes = () if dataset is None else dataset.notes
    return [without_folders(text) for text in (*paragraphs, *(f"Data: {note}." for note in notes))]


def _describe_intervals(comparison: Comparison) -> str:
    """What the intervals cover, and what they do not."""
    tests = comparison.tests[comparison.tests["metric"].isin(comparison.metrics)]
    known = tests.groupby("metric", sort=False)["sample_error"].count() > 0
    covered, others = (
        join([metric_of(name).title for name in known.index[known == has]]) for has in (True, False)
    )
    text = f"Intervals: {LEVEL} each, Student's t, with the variance over seeds of all methods. "
    if covered:
        text += f"Those of {covered} are for new seeds and new test samples of the same source. "
    if others:
        text += f"Those of {others} are for new seeds on the same test samples. "
    tested = join([metric_of(name).title for name in comparison.tested])
    return (
        f"{text}p-values are Holm-corrected over all differences from one baseline in {tested}. No "
        "interval covers another choice of training samples. Derivation and simulation: "
        "docs/understand/intervals."
    )
