"""A comparison as files: one page, JSON, CSV, Markdown, LaTeX, and every figure as PNG and SVG."""

import csv
import dataclasses
import io
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zetamix.atomic_io import json_safe, write_json, write_text
from zetamix.measure.statistics import CONFIDENCE, Difference
from zetamix.metrics import METRICS
from zetamix.provenance import machine_summary
from zetamix.report import Picture, Section, Table, render_page
from zetamix.report.compare_figures import draw_all
from zetamix.report.compare_tables import class_table, difference_table, main_table
from zetamix.report.compare_text import LEVEL, read
from zetamix.results.comparison import Comparison
from zetamix.text import plural

SCHEMA = "zetamix/compare/1"


def write_report(comparison: Comparison, out: Path, facts: Mapping[str, str]) -> Path:
    """Write `report.html`, `results.json`, `.csv`, `.md`, `.tex` and `figures/`; the page's path.

    facts: the machine and the command, from `zetamix.provenance.machine_info`.
    """
    pictures = draw_all(comparison)
    for picture in pictures.values():
        picture.save(out / "figures")
    tables = [main_table(comparison)]
    if comparison.compared:
        tables.append(difference_table(comparison))
    write_json(out / "results.json", json_safe(as_dict(comparison, facts)))
    write_text(out / "results.csv", make_csv(comparison))
    in_markdown = [main_table(comparison, second="in italics"), *tables[1:]]
    write_text(out / "results.md", _markdown(comparison, in_markdown, facts))
    write_text(out / "results.tex", _latex(comparison, tables))
    page = out / "report.html"
    write_text(page, _page(comparison, tables, pictures, facts))
    return page


def as_dict(comparison: Comparison, facts: Mapping[str, str]) -> dict[str, Any]:
    """Everything, from the verdict down to each run and epoch."""
    dataset = comparison.dataset
    return {
        "schema": SCHEMA,
        "command": facts["command"],
        "machine": dict(facts),
        "verdict": dict(read(comparison)),
        "dataset": {
            "name": dataset.name,
            "fingerprint": dataset.fingerprint,
            "origin": dataset.origin,
            "notes": list(dataset.notes),
            "classes": list(dataset.classes),
            "shape": list(dataset.shape),
            "samples": {name: len(split) for name, split in dataset.splits.items()},
        },
        "recipe": comparison.recipe.as_dict(),
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
                metric: dataclasses.asdict(comparison.summary(label, metric)) for metric in METRICS
            }
            for label in comparison.methods
        },
        "differences": [
            _difference(found)
            for reference in comparison.baselines
            for metric in comparison.metrics
            for found in comparison.differences(reference, metric)
        ],
        "recalls": {
            label: dict(zip(dataset.classes, comparison.recalls(label).T.tolist(), strict=True))
            for label in comparison.methods
        },
        "runs": [record.as_dict() for record in comparison.records.values()],
        "curves": [
            {"method": method, "seed": seed, "epochs": list(curve)}
            for (method, seed), curve in comparison.curves.items()
        ],
    }


def _difference(found: Difference) -> dict[str, Any]:
    return {**dataclasses.asdict(found), "significant": found.significant}


def make_csv(comparison: Comparison) -> str:
    """One line for each run, numbers in full."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["method", "seed", *METRICS, "wall_s", "step_ms", "key"])
    for (method, seed), record in comparison.records.items():
        values = [record.last[metric] for metric in METRICS]
        shown = ["" if math.isnan(value) else value for value in values]
        writer.writerow([method, seed, *shown, record.wall_s, record.step_ms, record.cell.key])
    return file.getvalue()


def _markdown(comparison: Comparison, tables: list[Table], facts: Mapping[str, str]) -> str:
    parts = [f"# {_title(comparison)}"]
    parts += [f"**{word}.** {sentence}" for word, sentence in read(comparison)]
    for table in tables:
        parts += [f"{table.caption}.", table.markdown(), *table.notes]
    parts += [f"`{facts['command']}`", machine_summary(dict(facts))]
    return "\n\n".join(parts) + "\n"


def _latex(comparison: Comparison, tables: list[Table]) -> str:
    """The tables, with booktabs; what they show as comments above them."""
    parts = []
    for table in tables:
        parts += [f"% {table.caption}", *(f"% {note}" for note in table.notes), table.latex(), ""]
    return "\n".join([f"% {_title(comparison)}; needs \\usepackage{{booktabs}}", *parts])


def _title(comparison: Comparison) -> str:
    unfinished = "" if comparison.complete else " (unfinished)"
    return f"{comparison.dataset.name}: does mixing help?{unfinished}"


def _page(
    comparison: Comparison,
    tables: list[Table],
    pictures: Mapping[str, Picture],
    facts: Mapping[str, str],
) -> str:
    sections = [Section("All methods", [tables[0]])]
    if comparison.compared:
        sections.append(Section("Differences", [tables[1], pictures["differences"]]))
    sections += [
        Section("Learning curves", [pictures["curves"]]),
        Section("Classes", [class_table(comparison), pictures["confusion"]]),
        Section("What the model is shown", [pictures["outputs"]]),
        Section("How it was measured", how(comparison)),
    ]
    return render_page(_title(comparison), sections, machine=facts, lead=read(comparison))


def how(comparison: Comparison) -> list[str]:
    """What a reader has to know to trust the numbers, and what they do not cover."""
    dataset, seeds = comparison.dataset, comparison.seeds
    recipe, test = comparison.recipe, len(dataset.splits["test"])
    words = [
        f"{plural(len(comparison.requested), 'method')} with {plural(len(seeds), 'seed')} each, on "
        f"the same {len(dataset.train):,} training samples and the same {test:,} test samples. A "
        "seed fixes initial weights and the order of the data, so that methods are compared in "
        "pairs which differ in the mixing alone.",
        f"Every run: {recipe.model}, {recipe.epochs} epochs, batches of {recipe.batch_size}, SGD "
        f"with momentum {recipe.momentum:g}{' (Nesterov)' if recipe.nesterov else ''}, learning "
        f"rate {recipe.lr:g} ({recipe.schedule}), weight decay {recipe.weight_decay:g}, "
        f"augmentation: {recipe.augmentation}. Recipe: {recipe.source}. Numbers are those after "
        "the last epoch; nothing was chosen by looking at the test split.",
        f"Intervals: Student's t on the differences of the seeds, {LEVEL} each. A share of test "
        f"samples moves in steps of one in {test:,}; balanced accuracy, macro F1 and the area "
        "under the ROC curve are taken to move as one sample moves a mean over classes. No "
        "interval of these is narrower than such a step allows. Claims hold for all methods "
        "together: p-values of all differences to one reference are adjusted after Holm. Intervals "
        "cover what differs between seeds: weights, order, mixing. They do not cover the choice of "
        "training and test samples; another test split would move all methods.",
        "Expected calibration error: 15 bins of equal width over the highest probability. A model "
        "trained on soft labels is less sure of itself, which can help or harm both it and the "
        "negative log-likelihood.",
        _machines(comparison),
    ]
    return words + [f"About the data: {note}." for note in dataset.notes]


def _machines(comparison: Comparison) -> str:
    """Where runs were trained, which need not be where the page was written."""
    lines = Counter(machine_summary(record.machine) for record in comparison.records.values())
    places = [f"{plural(count, 'run')} on {line}" for line, count in lines.items()]
    seconds = sum(record.wall_s for record in comparison.records.values())
    side = f" ({comparison.description})" if comparison.description else ""
    return f"Trained{side}: {'; '.join(places)}. All runs together took {seconds / 60:.1f} minutes."
