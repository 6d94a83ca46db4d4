"""`zetamix check`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zetamix_lab.cli import options
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.cli.live import show_reading
from zetamix_lab.text import plural

if TYPE_CHECKING:
    from zetamix_lab.data import Report

# longer lists are truncated to this many items
MAX_SHOWN = 10


def check(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Your own data, or the name of a dataset.")
    ],
    data_dir: options.DataDir = None,
    size: options.Size = None,
    group: options.GroupBy = None,
    show_all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="List everything, not only the first ten.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    json_file: options.Json = None,
) -> None:
    """Read every sample and report whether the data is fit to be trained on.

    Exits with status 1 if there is a problem: unreadable images, duplicates across splits or with
    conflicting labels, groups (--group) across splits, a class too small to split or missing from a
    split, invalid rows of a table. Duplicates within one split and class are listed only.
    """
    groups = options.parse_group(group)
    options.open_console(json_file)
    from zetamix_lab.data import check as check_data

    with report_errors():
        with show_reading() as progress:
            report = check_data(path, data_dir, size=size, group=groups, progress=progress)
        options.write_results(json_file, {**vars(report), "ok": report.ok})
        if json_file != options.STDOUT:
            _print_report(report, None if show_all else MAX_SHOWN)
    if not report.ok:
        raise typer.Exit(1)


def _print_report(report: "Report", limit: int | None) -> None:
    """limit: the maximum number of lines of a list; None prints all."""
    console = Console(highlight=False)
    problems = plural(len(report.problems) + len(report.unreadable), "problem")
    verdict = "[green]no problems[/green]" if report.ok else f"[red]{problems}[/red]"
    found = "no duplicates"
    if report.duplicates:
        found = plural(len(report.duplicates), "group of duplicates", "groups of duplicates")
    total = plural(sum(report.sizes.values()), "sample")
    console.print(f"[bold]{escape(report.name)}[/bold]: {total}, {verdict}; {found}")
    console.print(escape(report.origin), style="dim", soft_wrap=True)
    console.print(_count_table(report))
    lists = {
        "Problems": report.problems,
        "Unreadable files": report.unreadable,
        "Duplicates": [" = ".join(map(_describe, group)) for group in report.duplicates],
        "Groups in more than one split": [
            f"{name}: {', '.join(splits)}" for name, splits in report.shared_groups.items()
        ],
        "Notes": report.notes,
    }
    for title, lines in lists.items():
        if lines:
            typer.echo(f"\n{typer.style(title, bold=True)}")
        for line in lines[:limit]:
            typer.echo(f"  {line}")
        if limit is not None and len(lines) > limit:
            typer.echo(f"  and {len(lines) - limit:,} more; --all lists them")


def _describe(sample: Mapping[str, Any]) -> str:
    place = sample["name"] or f"row {sample['row']}"
    return f"{sample['split']} {place} ({sample['label']})"


def _count_table(report: "Report") -> Table:
    """Samples of each class by split."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("class", overflow="fold")
    for split in report.counts:
        table.add_column(split, justify="right")
    for label in report.counts["train"]:
        table.add_row(escape(label), *(f"{sizes[label]:,}" for sizes in report.counts.values()))
    table.add_row("total", *(f"{size:,}" for size in report.sizes.values()), style="bold")
    return table
