"""The report of a comparison: tables, one HTML page, and JSON, CSV, Markdown and LaTeX."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from zetamix_lab.atomic_io import json_safe, write_json, write_text
from zetamix_lab.comparison import Comparison, metric_of
from zetamix_lab.provenance import machine_summary
from zetamix_lab.report.compare_figures import draw_figures
from zetamix_lab.report.compare_text import LEVEL, describe_recipe, describe_terms, summarise
from zetamix_lab.report.page import Block, Section, render_page
from zetamix_lab.report.table import Cell, Mark, Table, latex_text, markdown_text
from zetamix_lab.statistics import CONFIDENCE
from zetamix_lab.text import join, plural

SCHEMA = "zetamix/compare/2"
FIRST_SCREEN = ("Result", "Next", "Caution")
# the folders of an absolute path, which are nobody's business
FOLDERS = re.compile(r"(?<![\w.:/])(?:[A-Za-z]:)?[/\\](?:[^/\\\s'\",:;]+[/\\])+(?=[^/\\\s'\"])")


def write_report(comparison: Comparison, out: Path, machine: Mapping[str, str]) -> Path:
    """Write report.html, results.json, .csv, .md, .tex and figures/; return the page's path.

    machine: the machine and the command, from `zetamix_lab.provenance.machine_info`.
    """
    machine = without_folders(dict(machine))
    found = without_folders(summarise(comparison, machine["command"]))
    pictures = draw_figures(comparison)
    for picture in pictures.values():
        picture.save(out / "figures")
    tables = [main_table(comparison)]
    if len(comparison.tests):
        tables += [difference_table(comparison, name) for name in comparison.tested]
    title = f"{comparison.name}: does mixing help?{' (incomplete)' if comparison.missing else ''}"
    write_json(out / "results.json", json_safe(as_dict(comparison, found, machine)))
    write_text(out / "results.csv", comparison.runs.dropna().to_csv(index=False))
    write_text(out / "results.md", _markdown(title, found, tables, machine))
    write_text(out / "results.tex", _latex(title, tables))
    folds: dict[str, Sequence[Block | None]] = {
        "The result in detail": [
            f"{name}. {text}" for name, text in found.items() if name not in FIRST_SCREEN
        ],
        "Differences": tables[1:],
        "Learning curves": [pictures.get("curves")],
        "Classes": [class_table(comparison)],
        "Training inputs": [pictures.get("outputs")],
        "How it was measured": describe_method(comparison),
    }
    first = [pictures["differences"]] if "differences" in pictures else []
    kept = {name: [block for block in blocks if block] for name, blocks in folds.items()}
    folded = [Section(name, blocks) for name, blocks in kept.items() if blocks]
    sections = [Section("", [*first, tables[0], *folded])]
    write_text(out / "report.html", render_page(title, sections, machine=machine, lead=found))
    return out / "report.html"


def without_folders(value: Any) -> Any:
    """A copy in which every absolute path is its last part, also within texts.

    >>> without_folders({"command": "zetamix compare --data /home/ann/photos --set a=1/2"})
    {'command': 'zetamix compare --data photos --set a=1/2'}
    """
    if isinstance(value, str):
        return FOLDERS.sub("", value)
    if isinstance(value, dict):
        return {key: without_folders(own) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(own) for own in value]
    return value


# tables


def main_table(comparison: Comparison, names: Sequence[str] | None = None) -> Table:
    """Mean ± standard deviation of the named metrics, by default all, for every method."""
    first, tests = comparison.baselines[0], comparison.tests
    better = {
        (test.method, test.metric)
        for test in tests[(tests["baseline"] == first) & tests["significant"]].itertuples()
        if metric_of(test.metric).sign * test.mean > 0
    }
    metrics = [metric_of(name) for name in names or comparison.metrics]
    rows = []
    for label in comparison.methods:
        row: list[Cell | int | str] = [comparison.name_of(label)]
        for metric in metrics:
            own = comparison.summary.loc[(label, metric.name)]
            values = comparison.values(label, metric.name).items()
            note = ", ".join(f"seed {seed}: {metric.number(value)}" for seed, value in values)
            mark: Mark = "best" if (label, metric.name) in better else ""
            mean, spread = metric.scale(own["mean"]), metric.scale(own["sd"])
            row.append(Cell(mean, spread, digits=metric.digits, mark=mark, note=note))
        rows.append([*row, int(comparison.summary.loc[(label, metrics[0].name), "n"])])
    note = "Mean ± standard deviation over seeds."
    if better:
        note += f" Bold: significantly better than {comparison.name_of(first)}."
    about = [f"{comparison.test_size:,} test samples"] if comparison.test_size else []
    about += [] if comparison.given is not None else ["after the last epoch"]
    caption = f"{comparison.name}: {', '.join(about)}".removesuffix(": ")
    columns = ["method", *(metric.heading for metric in metrics), "seeds"]
    tips = {m.heading: f"{m.title}; {m.better}" for m in metrics}
    tips["seeds"] = "finished runs of the method"
    return Table(columns, rows, caption, [note, *describe_terms(comparison)], tips)


def difference_table(comparison: Comparison, name: str | None = None) -> Table:
    """Differences from each baseline in a metric, the primary one unless named."""
    metric, p = metric_of(name or comparison.metrics[0]), "Holm-corrected p"
    columns, tips = ["method"], {p: "two-sided t-test, corrected over all tests"}
    rows = [[Cell(comparison.name_of(label))] for label in comparison.methods]
    for baseline in comparison.baselines:
        columns += [f"minus {comparison.name_of(baseline)} ({LEVEL})", p]
        tips[columns[-2]] = "mean difference and its interval"
        tests = {test.method: test for test in comparison.differences(baseline, name).itertuples()}
        for row, label in zip(rows, comparison.methods, strict=True):
            row += _difference_cells(tests.get(label))
    note = (
        f"Difference in {metric.title}{', points' if metric.percent else ''}, paired by seed, with "
        f"its {LEVEL} interval (uncorrected). {'Positive' if metric.sign > 0 else 'Negative'} is "
        f"better. Bold: significant after Holm's correction (p < {1 - CONFIDENCE:.2g})."
    )
    return Table(columns, rows, f"Differences in {metric.title}", [note], tips)


def _difference_cells(test: Any) -> list[Cell]:
    """A difference with its interval, bold if it is significant, and its p-value."""
    if test is None:
        return [Cell(None), Cell(None)]
    signed = metric_of(test.metric).signed
    if math.isnan(test.p):
        return [Cell(f"{signed(test.mean)} (no interval)"), Cell(None)]
    text = f"{signed(test.mean)} ({signed(test.low)} to {signed(test.high)})"
    p = "< 0.001" if test.p_holm < 0.001 else f"{test.p_holm:.3f}"
    return [Cell(text, mark="best" if test.significant else ""), Cell(p)]


def class_table(comparison: Comparison) -> Table | None:
    """Recall of every method in every class with test samples; None without confusion matrices."""
    dataset, counts, recalls = comparison.dataset, comparison.test_counts, comparison.recalls
    if dataset is None or counts is None or not recalls:
        return None
    rows = []
    for k in counts.nonzero().flatten().tolist():
        own = [100 * pd.Series(values[:, k]) for values in recalls.values()]
        cells = [Cell(values.mean(), values.std(), digits=1) for values in own]
        rows.append([dataset.classes[k], int(counts[k]), *cells])
    columns = ["class", "samples", *map(comparison.name_of, recalls)]
    note, tips = "Mean ± standard deviation over seeds.", {"samples": "in the test split"}
    return Table(columns, rows, "Per-class recall, %", [note], tips)


# files


def as_dict(
    comparison: Comparison, found: Mapping[str, str], machine: Mapping[str, str]
) -> dict[str, Any]:
    """The content of results.json: the verdict, all statistics, every run and epoch."""
    dataset, methods = comparison.dataset, comparison.methods
    about: dict[str, Any] = {"name": comparison.name}
    if dataset is not None:
        about |= {
            "fingerprint": dataset.fingerprint,
            "origin": dataset.origin,
            "notes": list(dataset.notes),
            "classes": list(dataset.classes),
            "shape": list(dataset.shape),
            "samples": {name: len(split) for name, split in dataset.splits.items()},
        }
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "command": machine["command"],
        "machine": dict(machine),
        "verdict": found,
        "dataset": about,
        "recipe": comparison.recipe.as_dict() if comparison.recipe else None,
        "seeds": list(comparison.seeds),
        "complete": not comparison.missing,
        "failures": [
            {"method": method, "seed": seed, "reason": reason}
            for (method, seed), reason in comparison.failures.items()
        ],
        "metrics": comparison.metrics,
        "confidence": CONFIDENCE,
        "methods": {
            label: {
                name: {**own, "values": comparison.values(label, name)}
                for name, own in comparison.summary.loc[label].to_dict("index").items()
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
    if dataset is not None and comparison.recalls:
        values["recalls"] = {
            label: dict(zip(dataset.classes, recalls.T.tolist(), strict=True))
            for label, recalls in comparison.recalls.items()
        }
    shown: dict[str, Any] = without_folders(values)
    return shown


def _markdown(
    title: str, found: Mapping[str, str], tables: list[Table], machine: Mapping[str, str]
) -> str:
    parts = [f"# {markdown_text(title)}"]
    parts += [f"**{heading}.** {markdown_text(text)}" for heading, text in found.items()]
    for table in tables:
        parts += [f"{markdown_text(table.caption)}.", table.markdown()]
        parts += map(markdown_text, table.notes)
    parts += [f"`{machine['command']}`", machine_summary(dict(machine))]
    return "\n\n".join(parts) + "\n"


def _latex(title: str, tables: list[Table]) -> str:
    lines = [f"% {latex_text(title)}; needs \\usepackage{{booktabs}}"]
    for table in tables:
        comments = [f"% {latex_text(text)}" for text in (table.caption, *table.notes)]
        lines += [*comments, table.latex(), ""]
    return "\n".join(lines)


def describe_method(comparison: Comparison) -> list[str]:
    """How the numbers were made, and what they do not cover."""
    dataset, recipe, records = comparison.dataset, comparison.recipe, comparison.records.values()
    paragraphs = []
    if dataset is not None and recipe is not None:
        paragraphs.append(
            f"Every run: {describe_recipe(dataset, recipe)}. A seed fixes the initial weights and "
            "the order of the data: paired runs differ only in the mixing. Numbers are of the last "
            "epoch; the test split selected nothing."
        )
    tested = join([metric_of(name).title for name in comparison.tested])
    paragraphs.append(
        f"Intervals: {LEVEL} each, Student's t, with the variance over seeds of all methods. They "
        "are for new seeds and, where a metric is made of results of single test samples that "
        "were kept, for new test samples of the same source; none covers other training samples. "
        f"p-values are Holm-corrected over all differences from one baseline in {tested}. "
        "Derivation: docs/understand/intervals."
    )
    if records:
        lines = Counter(machine_summary(record.machine) for record in records)
        machines = "; ".join(f"{plural(count, 'run')} on {line}" for line, count in lines.items())
        minutes = f"{sum(record.wall_s for record in records) / 60:.1f} minutes"
        where = f" ({comparison.description})" if comparison.description else ""
        paragraphs.append(f"Trained{where}: {machines}. The times of all runs add up to {minutes}.")
    notes = () if dataset is None else dataset.notes
    return [without_folders(text) for text in (*paragraphs, *(f"Data: {note}." for note in notes))]
