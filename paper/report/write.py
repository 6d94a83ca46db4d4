"""Files of the artifacts: figures, tables in three formats, a page each, and one page for all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from paper.datasets import CATALOGUE
from paper.report import make_report
from paper.report.artifact_report import (
    INCONCLUSIVE,
    NOT_REPRODUCED,
    NOT_RUN,
    PARTLY,
    REPRODUCED,
    SMOKE_TEST,
    ArtifactReport,
)
from paper.results import paper_values as paper
from paper.results.paper_cells import PaperCell
from paper.results.record_store import PaperView
from zetamix_lab.atomic_io import write_text
from zetamix_lab.provenance import machine_summary
from zetamix_lab.report import Cell, Column, Section, Table, render_page
from zetamix_lab.report.page import Block, Fold
from zetamix_lab.report.table import Plain
from zetamix_lab.text import sentence_case

TITLE, OUR_TITLE = "Reproduction of ζ-mixup", "ZetaMix"
GROUPS = (REPRODUCED, PARTLY, NOT_REPRODUCED, INCONCLUSIVE, NOT_RUN, SMOKE_TEST)
# the claims of the paper in plain language
CLAIMS = {
    "overview": "One image outweighs all others in every output",
    "distributions": "Outputs stay close to the data and keep classes apart",
    "mnist": "A classifier finds mixed digits more realistic than mixup's",
    "dimension": "Unlike mixup, it does not raise the intrinsic dimension of the data",
    "natural": "Lower error on natural images than with mixup or no mixing",
    "skin": "Higher balanced accuracy on skin lesions than with mixup or no mixing",
    "skin-detailed": "Higher F1 on skin lesions than with mixup or no mixing",
    "medmnist": "Higher AUC on small medical images than with mixup or no mixing",
    "timing": "Training takes no longer than with mixup",
    "sensitivity": "Results depend little on the parameter γ and on weight decay",
    "theorems": "Two theorems: the condition for dominance, and mixup as a special case",
}


def write_artifact(view: PaperView, folder: Path) -> ArtifactReport:
    """Write figures (SVG, PNG), tables (Markdown, LaTeX, CSV) and a page of them."""
    report = make_report(view)
    for picture in report.pictures:
        picture.save(folder)
    for name, table in report.tables.items():
        notes = "\n".join(f"- {note}" for note in table.notes)
        write_text(folder / f"{name}.md", f"**{table.caption}**\n\n{table.markdown()}\n\n{notes}\n")
        write_text(folder / f"{name}.tex", table.latex() + "\n")
        write_text(folder / f"{name}.csv", table.csv())
    # without the machine that rendered it, so that the page changes only with the records
    write_text(folder / "report.html", render_page(_title(view), [_section(view, report)]))
    return report


def write_page(views: Sequence[PaperView], path: Path, machine: Mapping[str, str]) -> None:
    """Write all artifacts, and one page of their verdicts, figures, tables and empty cells."""
    pairs = [(view, write_artifact(view, path.parent / view.artifact)) for view in views]
    sections = [_section(*pair) for pair in pairs]
    first = Section("What was reproduced", [_count_verdicts(pairs), verdict_table(pairs)])
    write_text(path, render_page(_title(views[0]), [first, *sections], machine=machine))


def verdict_table(pairs: Sequence[tuple[PaperView, ArtifactReport]]) -> Table:
    """The claims of the paper, whether they were reproduced, and the number of cells."""
    rows: list[list[Cell | Plain]] = [
        [
            Cell(CLAIMS.get(view.artifact, f"Not in the paper: {view.title}"), link=view.artifact),
            report.verdict.status,
            view.progress,
        ]
        for view, report in sorted(
            pairs, key=lambda pair: (pair[0].ours, GROUPS.index(_group(pair[1])))
        )
    ]
    measured = Column("measured", "cells with a result, of all cells of the figure or table")
    caption = "Each claim links to its figures, tables and missing cells"
    return Table(["claim of the paper", "here", measured], rows, caption)


def _count_verdicts(pairs: Sequence[tuple[PaperView, ArtifactReport]]) -> str:
    counts = Counter(_group(report) for view, report in pairs if not view.ours)
    listed = ", ".join(f"{counts[group]} {group}" for group in GROUPS if counts[group])
    return (
        "ζ-mixup trains image classifiers on weighted averages of many images, mixup on those of "
        f"two. Of {counts.total()} figures and tables of its paper: {listed}."
    )


def _group(report: ArtifactReport) -> str:
    status = report.verdict.status
    return next((group for group in GROUPS if status.startswith(group)), SMOKE_TEST)


def _title(view: PaperView) -> str:
    title = OUR_TITLE if view.ours else TITLE
    return f"{title} ({view.smoke_label})" if view.smoke_label else title


def _summary(view: PaperView, report: ArtifactReport) -> str:
    status = sentence_case(report.verdict.status)
    other = sum(view.store.find(cell) is not None for cell in view.more)
    more = f", and {other} with other variants of the recipe" if other else ""
    return f"{status}, {view.progress} cells{more}. {report.verdict.sentences[0]}"


def _section(view: PaperView, report: ArtifactReport) -> Section:
    blocks: list[Block] = [_summary(view, report), *report.verdict.sentences[1:], *report.pictures]
    tables = list(report.tables.values())
    if view.records:
        blocks += tables
    elif tables:
        blocks.append(Fold("The paper's values", tables))
    blocks += filter(None, [empty_cells(view)])
    if view.artifact not in paper.TABLES:
        # tables of trained models have these as notes
        issues = paper.footnotes(view.artifact)
        blocks += [f"About the paper: {issue.sentence}" for issue in issues]
    blocks += _provenance(view)
    return Section(sentence_case(view.title), blocks, anchor=view.artifact)


def _provenance(view: PaperView) -> list[str]:
    """The machines of the records, each once with its commits."""
    commits: dict[str, dict[str, None]] = {}
    for record in view.records:
        machine = {key: value for key, value in record.machine.items() if key != "commit"}
        own = commits.setdefault(machine_summary(machine), {})
        own |= {record.machine["commit"]: None} if "commit" in record.machine else {}
    parts = [
        f"{machine} · commit{'s'[: len(own) > 1]} {', '.join(own)}" if own else machine
        for machine, own in commits.items()
    ]
    return [f"Measured on {'; '.join(parts)}."] if parts else []


def empty_cells(view: PaperView) -> Table | None:
    """How many cells of each dataset have no record, and the command that fills them."""
    groups: dict[str, list[PaperCell]] = {}
    for cell in view.empty:
        groups.setdefault(cell.dataset, []).append(cell)
    if not groups:
        return None
    rows: list[list[Cell | Plain]] = [
        [CATALOGUE[name].title if name else "no data needed", len(cells), _command(view, cells)]
        for name, cells in groups.items()
    ]
    caption = f"Not run yet: {len(view.empty):,} of {len(view.cells):,} cells"
    return Table(["data", "empty cells", "command that fills them"], rows, caption)


def _command(view: PaperView, cells: Sequence[PaperCell]) -> str:
    name = cells[0].dataset
    devices = {cell.device for cell in cells} - {None} or {None}
    command = " && ".join(
        view.command(datasets=name or None, device=device) for device in sorted(devices, key=str)
    )
    access = CATALOGUE[name].access if name else "built in"
    if access == "built in":
        return command
    if access == "download":
        return f"python -m paper data prepare {name} && {command}"
    return f"{command}, once the data is available: python -m paper data info {name}"
