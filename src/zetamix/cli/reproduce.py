"""`zetamix reproduce`."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from zetamix.cli.errors import report_errors
from zetamix.cli.live import print_line, show_runs
from zetamix.cli.options import (
    DataDir,
    Device,
    Epochs,
    Jobs,
    Methods,
    Seeds,
    TimeLimit,
    make_stop,
    parse_device,
    parse_seeds,
)
from zetamix.text import did_you_mean

if TYPE_CHECKING:
    from zetamix.experiments.progress import CellProgress
    from zetamix.experiments.reproduce import CellRequest, Outcome, Session
    from zetamix.results.record_store import RecordStore
    from zetamix.train.stop import Stop

PAGE, ALL = "page", "all"
OUT, SMOKE_OUT = Path("out/reproduce"), Path("out/reproduce-quick")
# sentences of a verdict to print; the others are in README.md
MAX_SENTENCES = 6


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Artifacts of --list; all; or page: one HTML page."),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the artifacts with data, records and time left.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Smoke test on synthetic data with 1 epoch; the numbers are meaningless.",
        ),
    ] = False,
    datasets: Annotated[
        str | None, typer.Option("--datasets", help="Only these datasets, comma-separated.")
    ] = None,
    methods: Methods = None,
    seeds: Seeds = None,
    augmentation: Annotated[
        str | None,
        typer.Option("--augmentation", help="Override the recipe's: crop-flip, flip, none."),
    ] = None,
    epochs: Epochs = None,
    device: Device = None,
    jobs: Jobs = None,
    data_dir: DataDir = None,
    time_limit: TimeLimit = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the records. Default: out/reproduce."),
    ] = None,
) -> None:
    """Reproduce figures and tables of the paper: run the missing cells, then render.

    Every result is a record in OUT/ID/records.jsonl, with figures and tables beside it. Rerun the
    same command to resume. In a checkout, `--out results` extends the committed records.
    """
    # imports and loading of data count towards the time limit
    began = time.monotonic()
    console = Console()
    with report_errors():
        from zetamix.experiments.reproduce import Session
        from zetamix.results.record_store import RecordStore

        folder = out or (SMOKE_OUT if quick else OUT)
        store = RecordStore(folder)
        if data_dir is not None and not data_dir.is_dir():
            raise typer.BadParameter(f"{data_dir} is not a folder", param_hint="--data-dir")
        chosen = _parse_ids(ids or [ALL])
        if show_list or not ids:
            _list(console, store, [] if chosen == [PAGE] else chosen, data_dir, device, quick)
            return
        if chosen == [PAGE]:
            _write_page(console, store, quick)
            return
        request = _parse_request(datasets, methods, seeds, augmentation, epochs, quick)
        stop = make_stop(time_limit, began)
        session = Session(
            store,
            work=folder,
            data_dir=data_dir,
            device=parse_device(device),
            jobs=jobs,
            is_smoke=quick,
            stop=stop,
            log=lambda text: print_line(console, text, style="dim"),
            display=lambda: show_runs(console, name=_run_name),
        )
        with stop:
            outcomes = _run(session, chosen, request)
        for id, outcome in outcomes.items():
            _print_outcome(console, store, id, outcome, quick)
        _exit(console, stop, outcomes, session)


def _run_name(progress: "CellProgress") -> str:
    recipe = progress.cell.recipe
    return f"{progress.cell.dataset} {recipe['model']} {recipe['augmentation']} {progress.name}"


def _parse_ids(ids: list[str]) -> list[str]:
    from zetamix.experiments.reproduce import ARTIFACTS

    choices = [*ARTIFACTS, ALL, PAGE]
    for id in ids:
        if id not in choices:
            raise typer.BadParameter(
                f"expected one of {', '.join(choices)}, got {id!r}.{did_you_mean(id, choices)}",
                param_hint="ID",
            )
    if PAGE in ids and len(ids) > 1:
        raise typer.BadParameter("page covers all artifacts; give it alone", param_hint="ID")
    return list(ARTIFACTS) if ALL in ids else list(dict.fromkeys(ids))


def _parse_request(
    datasets: str | None,
    methods: str | None,
    seeds: str | None,
    augmentation: str | None,
    epochs: int | None,
    quick: bool,
) -> "CellRequest":
    from zetamix.experiments.reproduce import CellRequest
    from zetamix.methods import parse_list

    if quick and (seeds is not None or epochs is not None):
        raise typer.BadParameter("--quick uses one seed and one epoch; omit --seeds and --epochs")
    try:
        labels = None if methods is None else tuple(m.label for m in parse_list(methods))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--methods") from None
    return CellRequest(
        seeds=None if seeds is None else parse_seeds(seeds, 1),
        augmentations=_split(augmentation),
        epochs=epochs,
        datasets=_split(datasets),
        methods=labels,
    )


def _split(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(","))


def _run(session: "Session", ids: Sequence[str], request: "CellRequest") -> dict[str, "Outcome"]:
    from zetamix.experiments.reproduce import select_cells
    from zetamix.results.paper_cells import ReproduceError

    try:
        cells = {id: select_cells(id, request) for id in ids}
    except ReproduceError as error:
        raise typer.BadParameter(str(error)) from None
    return {id: session.run(id, cells[id]) for id in ids}


def _write_page(console: Console, store: "RecordStore", quick: bool) -> None:
    import torch

    from zetamix.experiments.reproduce import ARTIFACTS, make_view
    from zetamix.provenance import machine_info
    from zetamix.report.paper.write import write_page

    path = store.folder / "index.html"
    views = [make_view(id, store, is_smoke=quick) for id in ARTIFACTS]
    write_page(views, path, machine_info(torch.device("cpu")))
    console.print(f"Report written to {path}", highlight=False, soft_wrap=True)


def _print_outcome(
    console: Console, store: "RecordStore", id: str, outcome: "Outcome", quick: bool
) -> None:
    counts = (
        f"{outcome.ran} cells run, {outcome.had_record} had a record, {len(outcome.empty)} left"
    )
    console.print(f"[bold]{id}[/bold]: {counts}", highlight=False)
    sentences = _write_artifact(store, id, quick)
    more = len(sentences) - MAX_SENTENCES
    rest = [f"{more} more sentences in README.md."] if more > 0 else []
    for text in (*outcome.reasons, *sentences[:MAX_SENTENCES], *rest):
        console.print(Padding(Text(text), (0, 0, 0, 2)))
    console.print(f"[dim]  Written to {store.folder / id}[/dim]", highlight=False, soft_wrap=True)


def _write_artifact(store: "RecordStore", id: str, quick: bool) -> list[str]:
    """Write figures and tables, and return status and verdict; needs matplotlib and scipy."""
    from zetamix.experiments.reproduce import make_view

    try:
        from zetamix.report.paper.write import write_artifact
    except ModuleNotFoundError as error:
        if error.name not in ("matplotlib", "scipy"):
            raise
        return [
            f"Rendering needs {error.name}, which is not installed. The records are stored: run "
            "zetamix reproduce page where it is."
        ]
    verdict = write_artifact(make_view(id, store, is_smoke=quick), store.folder / id).verdict
    return [f"{verdict.status}: {verdict.sentences[0]}", *verdict.sentences[1:]]


def _exit(
    console: Console, stop: "Stop", outcomes: dict[str, "Outcome"], session: "Session"
) -> None:
    """Say why cells are left, and set the exit status."""
    if not any(outcome.empty for outcome in outcomes.values()):
        return
    if stop():
        for cell in session.discarded:
            console.print(f"Not saved, starts again: {cell.name}.", highlight=False)
        for run in session.unfinished:
            name = f"{run.cell.dataset} {run.name}"
            console.print(
                f"Saved: {name}, {run.epochs:.1f} of {run.total} epochs.", highlight=False
            )
        console.print(f"{stop.reason} Rerun the same command to resume.")
        # as shells do: 143 for SIGTERM, 130 for Ctrl-C
        raise typer.Exit(0 if stop.signal is None else 128 + stop.signal)
    if not any(outcome.ran for outcome in outcomes.values()):
        raise typer.Exit(1)


def _list(
    console: Console,
    store: "RecordStore",
    ids: Sequence[str],
    data_dir: Path | None,
    device: str | None,
    quick: bool,
) -> None:
    from zetamix.data import CATALOGUE
    from zetamix.data.loading import status
    from zetamix.experiments.reproduce import ARTIFACTS, estimate_seconds, make_view

    kind = parse_device(device).type
    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in ("id", "artifact and data"):
        table.add_column(head)
    for head in ("done", "missing", "time left"):
        table.add_column(head, justify="right", no_wrap=True)
    for id in ids or ARTIFACTS:
        view = make_view(id, store, is_smoke=quick)
        names = [name for name in dict.fromkeys(cell.dataset for cell in view.cells) if name]
        found = [name for name in names if status(CATALOGUE[name], data_dir)]
        absent = [name for name in names if name not in found]
        lines = [view.title]
        lines += [f"[green]available: {', '.join(found)}[/green]"] if found else []
        lines += [f"[dim]missing: {', '.join(absent)}[/dim]"] if absent else []
        runnable = [cell for cell in view.empty if cell.device in (None, kind)]
        left = _time_left(estimate_seconds(runnable, store))
        done = len(view.cells) - len(view.empty)
        table.add_row(f"[bold]{id}[/bold]", "\n".join(lines), str(done), str(len(view.empty)), left)
    console.print(table, highlight=False)
    console.print(
        "\nzetamix data info NAME explains how to get missing data. The time left is the median of "
        f"the records of each dataset, for the cells that run on {kind}; ≥: some cells have no "
        "record to estimate from.",
        highlight=False,
    )


def _time_left(estimates: Sequence[float | None]) -> str:
    numbers = [seconds for seconds in estimates if seconds is not None]
    if not estimates:
        return "–"
    if not numbers:
        return "unknown"
    prefix = "≈" if len(numbers) == len(estimates) else "≥"
    total = sum(numbers)
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if total >= size:
            return f"{prefix} {total / size:,.1f} {unit}"
    return f"{prefix} {max(1, round(total))} s"
