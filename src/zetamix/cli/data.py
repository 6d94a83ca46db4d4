"""`zetamix data`: list, info, prepare, check."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from zetamix.cli.facts import (
    SHOWN,
    add_content,
    add_prepared,
    add_spec,
    fact_table,
    form,
    to_prepare,
)

if TYPE_CHECKING:
    from zetamix.data import Report
    from zetamix.data.source import Progress as Callback

data = typer.Typer(
    help="Datasets: every one of the paper by name, or your own by path.", no_args_is_help=True
)

What = Annotated[str, typer.Argument(metavar="NAME|PATH", help="A name, or a path of your own.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Where archives and prepared data are; else $ZETAMIX_DATA, else ~/.cache/zetamix."
    ),
]
Seed = Annotated[int, typer.Option(help="Of splits that have to be made, and of synthetic data.")]
Size = Annotated[
    int | None,
    typer.Option(
        help="Side in pixels that images of your own get; else as they are if alike, like their "
        "own if small, or 224."
    ),
]

GET = {"built in": "", "download": "auto", "tool": "tool", "request": "ask"}


@data.command(name="list")
def list_datasets(data_dir: DataDir = None) -> None:
    """All datasets that are known by name, and which of them are here."""
    from zetamix.data.catalogue import CATALOGUE
    from zetamix.data.loading import status
    from zetamix.data.source import resolve_data_dir

    console = Console()
    # fits into 80 columns
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name, justify in (
        ("name", "left"),
        ("images", "right"),
        ("classes", "right"),
        ("size", "left"),
        ("licence", "left"),
        ("get", "left"),
        ("here", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    group = ""
    for spec in CATALOGUE.values():
        if group and group != spec.group:
            table.add_row()
        group = spec.group
        here = status(spec, data_dir)
        table.add_row(
            f"[bold]{spec.name}[/bold]" if here else spec.name,
            f"{spec.images:,}",
            str(len(spec.classes)),
            form(spec.shape),
            spec.licence,
            GET[spec.access],
            here,
        )
    console.print(table)
    console.print(
        "\nget: auto downloads by itself, tool needs a tool, ask needs a licence or a request: "
        "zetamix data info NAME says how.",
        highlight=False,
    )
    console.print(
        f"Looked in {escape(str(resolve_data_dir(data_dir)))}.", highlight=False, soft_wrap=True
    )


@data.command()
def info(what: What, data_dir: DataDir = None, seed: Seed = 0, size: Size = None) -> None:
    """What a dataset is, where it comes from, and whether it is here."""
    from zetamix.data.loading import draw, find, ready

    console = Console()
    with _sentences():
        request = find(what, data_dir, seed, size)
        facts = fact_table()
        found = draw(request) or ready(request)
        if request.spec is not None:
            add_spec(facts, request.spec, request.data_dir, None if found else seed)
        elif found is not None:
            add_content(facts, found)
        else:
            facts.add_row("name", escape(request.name))
            facts.add_row("path", escape(what))
            facts.add_row(
                "here", f"yes, not prepared: {escape(to_prepare(what, data_dir, seed, size))}"
            )
        if found is not None:
            known = request.spec.notes if request.spec is not None else ()
            add_prepared(facts, found, request.folder, known)
        console.print(facts, highlight=False)


@data.command()
def prepare(
    what: What,
    data_dir: DataDir = None,
    seed: Seed = 0,
    size: Size = None,
    again: Annotated[bool, typer.Option(help="Also where it is prepared already.")] = False,
) -> None:
    """Download where that is allowed, verify, and decode once; later loads take no time."""
    from zetamix.data import prepare as prepare_data
    from zetamix.data.loading import find

    console = Console()
    with _sentences(), progress_bar() as show:
        found = prepare_data(what, data_dir, seed, size, progress=show, again=again)
        folder = find(what, data_dir, seed, size).folder
    facts = fact_table()
    add_content(facts, found)
    add_prepared(facts, found, folder)
    console.print(facts, highlight=False)


@data.command()
def check(what: What, data_dir: DataDir = None, seed: Seed = 0, size: Size = None) -> None:
    """Read every sample: counts against what is expected, broken and duplicate images.

    Ends with status 1 if anything is wrong: images that cannot be read,
    identical ones in more than one split or with different classes, counts
    other than expected, a class that is too small to split or missing in a
    split, a row of a table that will not do, damaged prepared data.
    Duplicates in one split and class are only named.
    """
    from zetamix.data import check as check_data

    console = Console()
    with _sentences(), progress_bar() as show:
        report = check_data(what, data_dir, seed, size, progress=show)
    _print_verdict(console, report)
    console.print(_count_table(report))
    for title, lines in (
        ("Wrong", report.problems),
        ("Cannot be read", report.corrupt),
        ("Duplicates", [" = ".join(map(str, group)) for group in report.duplicates]),
        ("Notes", report.notes),
    ):
        if lines:
            console.print(f"\n[bold]{title}[/bold]")
            for line in lines[:SHOWN]:
                console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
            if len(lines) > SHOWN:
                console.print(f"  and {len(lines) - SHOWN:,} more", highlight=False)
    if not report.ok:
        raise typer.Exit(1)


def _print_verdict(console: Console, report: "Report") -> None:
    from zetamix.text import plural

    total = sum(report.sizes.values())
    wrong = len(report.problems) + len(report.corrupt)
    verdict = "[green]as expected[/green]" if report.ok else f"[red]{wrong:,} wrong[/red]"
    if report.ok and not report.expected_sizes:
        verdict = "[green]all readable[/green]"
    parts = [f"{plural(total, 'sample')}, {verdict}"]
    if report.duplicates:
        said = f"{plural(len(report.duplicates), 'group')} of duplicates"
        if report.leaks:
            said += f", {report.leaks:,} in more than one split"
        if report.contradictions:
            said += f", {report.contradictions:,} with different classes"
        parts.append(said)
    else:
        parts.append("no duplicates")
    console.print(f"[bold]{escape(report.name)}[/bold]: {'; '.join(parts)}", highlight=False)
    console.print(escape(report.origin), style="dim", highlight=False, soft_wrap=True)


def _count_table(report: "Report") -> Table:
    """Samples of each class by split; what was expected in brackets where it differs."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("class", overflow="fold")
    splits = list(dict.fromkeys(count.split for count in report.counts))
    for split in splits:
        table.add_column(split, justify="right")
    by_place = {(count.label, count.split): count for count in report.counts}
    for label in dict.fromkeys(count.label for count in report.counts):
        cells = []
        for split in splits:
            count = by_place[label, split]
            shown = f"{count.found:,}"
            cells.append(f"[red]{shown} ({count.expected:,})[/red]" if count.differs else shown)
        table.add_row(escape(label), *cells)
    sizes = {**report.sizes, "all": sum(report.sizes.values())}
    totals = [f"{sizes[split]:,}" for split in splits]
    table.add_row("total", *totals, style="bold")
    return table


@contextmanager
def _sentences() -> Iterator[None]:
    """What goes wrong with data is said in a sentence, not in a traceback."""
    from zetamix.data import DataError

    try:
        yield
    except DataError as error:
        _say(str(error), style="red")
        raise typer.Exit(1) from None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    except KeyboardInterrupt:
        _say("Interrupted; nothing half-done is left.")
        raise typer.Exit(130) from None


def _say(text: str, style: str = "") -> None:
    Console(stderr=True, soft_wrap=True).print(text, style=style, markup=False, highlight=False)


@contextmanager
def progress_bar() -> Iterator["Callback"]:
    """A bar on standard error that is gone when the work is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("looking", total=None)

        def show(what: str, done: int, total: int) -> None:
            if what.startswith(("downloading", "unpacking")):
                what, done, total = f"{what}, MB", done // 10**6, total // 10**6
            bar.update(task, description=what, completed=done, total=total or None)

        yield show
