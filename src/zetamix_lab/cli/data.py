"""`zetamix data`: list, info, prepare, check."""

import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zetamix.text import plural
from zetamix_lab.cli import options
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.cli.live import print_line, show_reading

if TYPE_CHECKING:
    from zetamix_lab.data import Dataset, DatasetSpec, Report

data = typer.Typer(
    help="Datasets: those of the paper by name, or your own by path.", no_args_is_help=True
)

Name = Annotated[
    str, typer.Argument(metavar="NAME|PATH", help="Name of a dataset, or path of your own data.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of created splits and of synthetic data.")]
All = Annotated[bool, typer.Option("--all", help="List everything, not only the first ten.")]
Force = Annotated[bool, typer.Option("--force", help="Prepare again even if already prepared.")]

ACCESS = {"built in": "", "download": "auto", "tool": "tool", "request": "request"}
SPLIT_KINDS = {"official": "official", "made": "stratified 70/10/20, seeded", "drawn": "drawn"}
# longer lists are truncated to this many items
MAX_SHOWN = 10


@data.command(name="list")
def list_datasets(data_dir: options.DataDir = None, json_file: options.Json = None) -> None:
    """List all datasets available by name, and which of them are on this machine."""
    console = options.open_console(json_file)
    from zetamix_lab.data import CATALOGUE
    from zetamix_lab.data.load_dataset import status
    from zetamix_lab.data.source import resolve_data_dir

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading in ("name", "images", "classes", "size", "licence", "get", "local"):
        right = heading in ("images", "classes")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    statuses = {name: status(spec, data_dir) for name, spec in CATALOGUE.items()}
    for _, group in groupby(CATALOGUE.values(), lambda spec: spec.group):
        for spec in group:
            local = statuses[spec.name]
            name = f"[bold]{spec.name}[/bold]" if local else spec.name
            size = (f"{spec.images:,}", str(len(spec.classes)), describe_shape(spec.shape))
            table.add_row(name, *size, spec.licence, ACCESS[spec.access], local)
        table.add_row()
    console.print(table)
    print_line(
        console,
        "auto: zetamix data prepare NAME downloads it; tool, request: see zetamix data info NAME.",
    )
    print_line(console, f"Data folder: {resolve_data_dir(data_dir)}")
    entries = [{**_spec_values(s), "local": statuses[s.name]} for s in CATALOGUE.values()]
    options.write_results(json_file, entries)


@data.command()
def info(
    name: Name,
    data_dir: options.DataDir = None,
    seed: Seed = 0,
    size: options.Size = None,
    group: options.GroupColumn = None,
    group_pattern: options.GroupPattern = None,
    json_file: options.Json = None,
) -> None:
    """Show what a dataset is, where it comes from, and whether it is on this machine."""
    console = options.open_console(json_file)
    from zetamix_lab.data.load_dataset import resolve

    by = options.parse_group(group, group_pattern)
    with report_errors():
        request = resolve(name, data_dir, seed, size, by)
        dataset = request.open()
    rows = _describe_spec(request.spec) if request.spec else [("name", request.name)]
    if dataset is not None:
        content = _describe_dataset(dataset, request.folder)
        rows += [row for row in content if row not in rows and row[0] != "name"]
    elif request.spec is not None:
        rows += _describe_access(request.spec, request.data_dir)
    else:
        choices = {
            "--data-dir": data_dir,
            "--seed": seed or None,
            "--size": size,
            "--group": group,
            "--group-pattern": group_pattern,
        }
        given = [str(x) for pair in choices.items() if pair[1] is not None for x in pair]
        command = shlex.join(["zetamix", "data", "prepare", name, *given])
        rows += [("path", name), ("local", f"yes, not prepared: {command}")]
    _print_rows(console, rows)
    values = _spec_values(request.spec) if request.spec else {"name": request.name}
    if dataset is not None:
        values |= _dataset_values(dataset)
    local = str(request.folder) if dataset is not None else None
    options.write_results(json_file, {**values, "prepared": local})


@data.command()
def prepare(
    name: Name,
    data_dir: options.DataDir = None,
    seed: Seed = 0,
    size: options.Size = None,
    group: options.GroupColumn = None,
    group_pattern: options.GroupPattern = None,
    force: Force = False,
    skip_broken: options.SkipBroken = False,
    json_file: options.Json = None,
) -> None:
    """Download a dataset where possible, verify it, and decode it once for fast loading."""
    console = options.open_console(json_file)
    from zetamix_lab.data import prepare as prepare_data
    from zetamix_lab.data.load_dataset import resolve

    by = options.parse_group(group, group_pattern)
    with report_errors(), show_reading() as progress:
        dataset = prepare_data(
            name,
            data_dir,
            seed,
            size,
            by,
            progress=progress,
            force=force,
            skip_broken=skip_broken,
        )
        folder = resolve(name, data_dir, seed, size, by).folder
    _print_rows(console, _describe_dataset(dataset, folder))
    options.write_results(json_file, {**_dataset_values(dataset), "prepared": str(folder)})


@data.command()
def check(
    name: Name,
    data_dir: options.DataDir = None,
    seed: Seed = 0,
    size: options.Size = None,
    group: options.GroupColumn = None,
    group_pattern: options.GroupPattern = None,
    show_all: All = False,
    json_file: options.Json = None,
) -> None:
    """Read every sample and report broken images, duplicates, and unexpected counts.

    Exits with status 1 if there is a problem: unreadable images, duplicates
    across splits or with conflicting labels, groups (--group) across splits,
    counts that differ from the expected ones, a class too small to split or
    missing from a split, invalid rows of a table, damaged prepared data.
    Duplicates within one split and class, and near-duplicates (images that were
    re-encoded, resized or brightened), are listed only.
    """
    from zetamix_lab.data import check as check_data

    by = options.parse_group(group, group_pattern)
    options.open_console(json_file)
    with report_errors(), show_reading() as progress:
        report = check_data(name, data_dir, seed, size, by, progress=progress)
    options.write_results(json_file, report.as_dict())
    if json_file != options.STDOUT:
        _print_report(report, None if show_all else MAX_SHOWN)
    if not report.ok:
        raise typer.Exit(1)


def _print_report(report: "Report", limit: int | None) -> None:
    """limit: the maximum number of lines of a list; None prints all."""
    _print_summary(report)
    Console().print(_count_table(report))
    lists = {
        "Problems": report.problems,
        "Unreadable files": report.corrupt,
        "Duplicates": [" = ".join(map(str, group)) for group in report.duplicates],
        "Near-duplicates": [" ≈ ".join(map(str, group)) for group in report.near_duplicates],
        "Groups in more than one split": [str(shared) for shared in report.shared_groups],
        "Notes": report.notes,
    }
    for title, lines in lists.items():
        _print_list(title, lines, limit)


def describe_shape(shape: tuple[int, ...]) -> str:
    """28² grey, 256² RGB, R¹²."""
    if len(shape) == 1:
        return "R" + str(shape[0]).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    channels, height, width = shape
    side = f"{height}²" if height == width else f"{height}×{width}"
    return f"{side} {'grey' if channels == 1 else 'RGB'}"


def _spec_values(spec: "DatasetSpec") -> dict[str, Any]:
    """The catalogue's entry, for JSON."""
    return {
        "name": spec.name,
        "title": spec.title,
        "classes": list(spec.classes),
        "shape": list(spec.shape),
        "sizes": dict(spec.sizes),
        "licence": spec.licence,
        "access": spec.access,
        "url": spec.url,
    }


def _dataset_values(dataset: "Dataset") -> dict[str, Any]:
    """A dataset as it is loaded, for JSON."""
    return {
        "name": dataset.name,
        "classes": list(dataset.classes),
        "shape": list(dataset.shape),
        "sizes": {name: len(split) for name, split in dataset.splits.items()},
        "fingerprint": dataset.fingerprint,
        "notes": list(dataset.notes),
    }


def _describe_spec(spec: "DatasetSpec") -> list[tuple[str, str]]:
    """The catalogue's entry."""
    sizes = ", ".join(f"{split} {count:,}" for split, count in spec.sizes.items())
    return [
        ("name", f"{spec.name}, {spec.title}"),
        ("classes", _class_list(spec.classes)),
        ("samples", describe_shape(spec.shape)),
        ("splits", f"{sizes} ({SPLIT_KINDS[spec.split]})"),
        *([("images", f"{spec.fit.describe()}; {spec.fit.why}")] if spec.fit.why else []),
        ("licence", spec.licence),
        *([("source", spec.url)] if spec.url else []),
        *(("note", note) for note in spec.notes),
    ]


def _describe_access(spec: "DatasetSpec", data_dir: Path) -> list[tuple[str, str]]:
    """Whether a dataset that is not prepared is on this machine, and how to get it."""
    from zetamix_lab.data.download import copy_hint, download_hint
    from zetamix_lab.data.load_dataset import status

    local = status(spec, data_dir)
    if local == "built in":
        return [("local", "built in; prepared on first use")]
    if local == "files":
        return [("local", f"files, not prepared: zetamix data prepare {spec.name}")]
    alternative = [("or", hint)] if (hint := copy_hint(spec, data_dir)) else []
    return [("local", f"no. {download_hint(spec, data_dir)}"), *alternative]


def _describe_dataset(dataset: "Dataset", folder: Path) -> list[tuple[str, str]]:
    """The content of a dataset on this machine."""
    sizes = ", ".join(f"{name} {len(split):,}" for name, split in dataset.splits.items())
    return [
        ("name", dataset.name),
        ("classes", _class_list(dataset.classes)),
        ("samples", describe_shape(dataset.shape)),
        *(("note", note) for note in dataset.notes),
        ("local", sizes),
        ("from", dataset.origin),
        *([("prepared", str(folder))] if folder.is_dir() else []),
        ("fingerprint", dataset.fingerprint),
    ]


def _class_list(names: tuple[str, ...]) -> str:
    if len(names) <= 2 * MAX_SHOWN:
        return f"{len(names)}: {', '.join(names)}"
    return f"{len(names)}: {', '.join(names[:MAX_SHOWN])} and {len(names) - MAX_SHOWN:,} more"


def _print_rows(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, text in rows:
        table.add_row(heading, escape(text))
    console.print(table, highlight=False)


def _print_summary(report: "Report") -> None:
    total = plural(sum(report.sizes.values()), "sample")
    problems = plural(len(report.problems) + len(report.corrupt), "problem")
    verdict = "[green]no problems[/green]" if report.ok else f"[red]{problems}[/red]"
    duplicates = plural(len(report.duplicates), "group of duplicates", "groups of duplicates")
    if report.leaks:
        duplicates += f", {report.leaks:,} across splits"
    if report.conflicts:
        duplicates += f", {report.conflicts:,} with conflicting labels"
    found = duplicates if report.duplicates else "no duplicates"
    if report.near_duplicates:
        count = plural(len(report.near_duplicates), "group", "groups")
        found += f"; {count} of near-duplicates"
    summary = f"{total}, {verdict}; {found}"
    console = Console(highlight=False)
    console.print(f"[bold]{escape(report.name)}[/bold]: {summary}")
    console.print(escape(report.origin), style="dim", soft_wrap=True)


def _count_table(report: "Report") -> Table:
    """Samples of each class by split, with the expected count in brackets if it differs."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("class", overflow="fold")
    sizes = {**report.sizes, "all": sum(report.sizes.values())}
    splits = list(dict.fromkeys(count.split for count in report.counts))
    for split in splits:
        table.add_column(split, justify="right")
    rows: dict[str, list[str]] = {}
    for count in report.counts:
        cell = f"{count.size:,}"
        cell = f"[red]{cell} ({count.expected:,})[/red]" if count.differs else cell
        rows.setdefault(count.label, []).append(cell)
    for label, cells in rows.items():
        table.add_row(escape(label), *cells)
    table.add_row("total", *(f"{sizes[split]:,}" for split in splits), style="bold")
    return table


def _print_list(title: str, lines: Sequence[str], limit: int | None) -> None:
    if lines:
        typer.echo(f"\n{typer.style(title, bold=True)}")
    for line in lines[:limit]:
        typer.echo(f"  {line}")
    if limit is not None and len(lines) > limit:
        typer.echo(f"  and {len(lines) - limit:,} more; --all lists them")
