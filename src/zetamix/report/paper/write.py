"""Files of the artifacts: figures, tables in four formats, a README each, and one page for all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from zetamix.atomic_io import write_text
from zetamix.data import CATALOGUE
from zetamix.provenance import machine_summary
from zetamix.report import Cell, Column, Section, Table, render_page
from zetamix.report.page import Block, Fold
from zetamix.report.paper import make_report
from zetamix.report.paper.verdict import ArtifactReport
from zetamix.report.table import Plain
from zetamix.results import paper_values as paper
from zetamix.results.paper_cells import PaperCell
from zetamix.results.paper_view import PaperView

TITLE = "Reproduction of ζ-mixup"


def write_artifact(view: PaperView, folder: Path) -> ArtifactReport:
    """Write figures (SVG, PNG), tables (Markdown, LaTeX, CSV, HTML) and a README."""
    report = make_report(view)
    for picture in report.pictures:
        picture.save(folder)
    for name, table in report.tables.items():
        write_text(folder / f"{name}.md", _markdown(table))
        write_text(folder / f"{name}.tex", table.latex() + "\n")
        write_text(folder / f"{name}.csv", table.csv())
        # without the machine that rendered it: a table changes only with its records
        section = Section(table.caption, [table, *_provenance(view)])
        write_text(folder / f"{name}.html", render_page(table.caption, [section]))
    write_text(folder / "README.md", _readme(view, report))
    return report


def write_page(views: Sequence[PaperView], path: Path, machine: Mapping[str, str]) -> None:
    """Write all artifacts, and one page of their verdicts, figures, tables and empty cells."""
    sections, lead = [], []
    counts: Counter[str] = Counter()
    for view in views:
        report = write_artifact(view, path.parent / view.artifact)
        sections.append(_section(view, report))
        verdict = report.verdict
        counts[verdict.status] += 1
        lead.append(
            (
                view.artifact,
                f"{_capitalised(verdict.status)} ({_progress(view)}). {verdict.sentences[0]}",
            )
        )
    label = views[0].smoke_label
    summary = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    lead.insert(0, ("Summary", f"{len(views)} figures and tables of the paper: {summary}."))
    title = f"{TITLE} ({label})" if label else TITLE
    write_text(path, render_page(title, sections, machine=machine, lead=lead))


def _section(view: PaperView, report: ArtifactReport) -> Section:
    blocks: list[Block] = [*report.verdict.sentences, *report.pictures]
    tables = list(report.tables.values())
    if view.records:
        blocks += tables
    elif tables:
        blocks.append(Fold("The paper's values", tables))
    empty = empty_cells(view)
    blocks += [empty] if empty is not None else []
    blocks += [*_about_the_paper(view), *_provenance(view)]
    return Section(f"{view.artifact}: {view.title}", blocks, anchor=view.artifact)


def _readme(view: PaperView, report: ArtifactReport) -> str:
    parts = [f"# {view.artifact}: {view.title}"]
    smoke = " --quick" if view.smoke_label else ""
    parts.append(f"{_progress(view)}. Made by `zetamix reproduce {view.artifact}{smoke}`.")
    parts += report.verdict.sentences
    for picture in report.pictures:
        parts.append(f"![{picture.alt}]({picture.name}.png)\n\n*{picture.caption}*")
    parts += [_markdown(table).rstrip() for table in report.tables.values()]
    empty = empty_cells(view)
    parts += [_markdown(empty).rstrip()] if empty is not None else []
    parts += [*_about_the_paper(view), *_provenance(view)]
    return "\n\n".join(parts) + "\n"


def _markdown(table: Table) -> str:
    notes = "\n".join(f"- {note}" for note in table.notes)
    return f"**{table.caption}**\n\n{table.markdown()}\n\n{notes}\n"


def _capitalised(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _progress(view: PaperView) -> str:
    done = len(view.cells) - len(view.empty)
    other = sum(view.store.find(cell) is not None for cell in view.more)
    more = f", and {other} of other variants of the recipe" if other else ""
    return f"{done} of {len(view.cells)} cells{more}"


def _about_the_paper(view: PaperView) -> list[str]:
    """Known issues, which tables of trained models have as notes already."""
    if view.artifact in paper.TABLES:
        return []
    return [f"About the paper: {issue.sentence}" for issue in paper.footnotes(view.artifact)]


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
    caption = f"Not run yet: {len(view.empty)} of {len(view.cells)} cells"
    columns = [Column("data"), Column("empty cells"), Column("command that fills them")]
    return Table(columns, rows, caption)


def _command(view: PaperView, cells: Sequence[PaperCell]) -> str:
    name = cells[0].dataset
    devices = sorted({cell.device for cell in cells if cell.device is not None})
    options = [f"--datasets {name}"] if name else []
    options += [f"--device {device}" for device in devices[:1]]
    command = " ".join(["zetamix reproduce", view.artifact, *options])
    access = CATALOGUE[name].access if name else "built in"
    if access == "built in":
        return command
    if access == "download":
        return f"zetamix data prepare {name} && {command}"
    return f"{command}, once the data is available: zetamix data info {name}"
