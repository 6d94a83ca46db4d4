"""`zetamix check`."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from zetamix_lab.cli import options
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.cli.live import print_table, show_reading
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
    as_json: Annotated[
        bool, options.option(options.OUTPUT, "Print the report as JSON, with all lists.", "--json")
    ] = False,
) -> None:
    """Read every sample and report whether the data is fit to be trained on.

    Exits with status 1 if there is a problem: unreadable images, duplicates across splits or with
    conflicting labels, groups (--group) across splits, a class too small to split or missing from a
    split, invalid rows of a table. Duplicates within one split and class are listed only.
    """
    groups = options.parse_group(group)
    from zetamix_lab.data import check as check_data

    with report_errors(), show_reading() as progress:
        report = check_data(path, data_dir, size=size, group=groups, progress=progress)
    if as_json:
        found = {**vars(report), "ok": report.ok}
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        _print_report(report)
    if not report.ok:
        raise typer.Exit(1)


def _print_report(report: "Report") -> None:
    from zetamix_lab.report import Table

    console = Console(highlight=False)
    problems = plural(len(report.problems) + len(report.unreadable), "problem")
    verdict = "[green]no problems[/green]" if report.ok else f"[red]{problems}[/red]"
    found = "no duplicates"
    if report.duplicates:
        found = plural(len(report.duplicates), "group of duplicates", "groups of duplicates")
    total = plural(sum(report.sizes.values()), "sample")
    console.print(f"[bold]{escape(report.name)}[/bold]: {total}, {verdict}; {found}")
    console.print(escape(report.origin), style="dim", soft_wrap=True)
    counts = report.counts.values()
    rows: list[Any] = [(k, *(sizes[k] for sizes in counts)) for k in report.counts["train"]]
    rows.append(("total", *report.sizes.values()))
    print_table(console, Table(["class", *report.counts], rows))
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
        more = [f"and {len(lines) - MAX_SHOWN:,} more; --json has them"]
        shown = [*lines[:MAX_SHOWN], *(more if len(lines) > MAX_SHOWN else [])]
        if lines:
            typer.echo("\n  ".join([typer.style(title, bold=True), *shown]) + "\n")


def _describe(sample: Mapping[str, Any]) -> str:
    place = sample["name"] or f"row {sample['row']}"
    return f"{sample['split']} {place} ({sample['label']})"
