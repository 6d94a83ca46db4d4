"""`zetamix reproduce --list`: every artifact, its data, cells done and missing, and the time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def list_artifacts(
    console: Console,
    results: Any,
    data_dir: Path | None,
    place: Any,
    ids: Sequence[str],
    quick: bool,
) -> None:
    """Print a table of artifacts: the paper's cells, or those of a quick run."""
    from zetamix.data import CATALOGUE
    from zetamix.data.loading import status
    from zetamix.experiments.reproduce import EXPERIMENTS, Ask
    from zetamix.experiments.reproduce.smoke import shorten
    from zetamix.experiments.reproduce.speed import Speed

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, justify in (("id", "left"), ("what it shows, and its data", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name in ("done", "missing", *(() if quick else ("time left",))):
        table.add_column(name, justify="right", no_wrap=True)
    speed = Speed(place, results)
    for experiment in (EXPERIMENTS[id] for id in ids):
        cells = experiment.cells(Ask())
        cells = shorten(cells, place) if quick else cells
        empty = [cell for cell in cells if results.find(cell) is None]
        names = [name for name in dict.fromkeys(cell.dataset for cell in cells) if name]
        here = [name for name in names if status(CATALOGUE[name], data_dir)]
        gone = [name for name in names if name not in here]
        able = [cell for cell in empty if cell.device in (None, place.type)]
        lines = [experiment.what]
        lines += [f"[green]here: {', '.join(here)}[/green]"] if here else []
        lines += [f"[dim]not here: {', '.join(gone)}[/dim]"] if gone else []
        row = [str(len(cells) - len(empty)), str(len(empty))]
        first = next(id for id in ids if EXPERIMENTS[id].cells is experiment.cells)
        if first != experiment.id:
            # what both need is trained once
            row.append(f"as {first}")
        else:
            row.append(_duration(sum(map(speed.seconds, able))) if able else "–")
        name = f"[bold]{experiment.id}[/bold]"
        table.add_row(name, "\n".join(lines), *(row[:2] if quick else row))
    console.print(table, highlight=False)
    if quick:
        console.print(
            "\nOf --quick, where stand-ins do for data that is not here; it takes seconds."
        )
        return
    console.print(
        "\nzetamix data info NAME says how to get data that is not here. Times are estimates for "
        f"all missing cells on {speed.facts.get('gpu', speed.facts['processor'])}, one after the "
        "other; those that another device has to measure are not counted.",
        highlight=False,
    )


def _duration(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "m")):
        if seconds >= size:
            count = seconds / size
            return f"≈ {count:.1f} {unit}" if count < 9.95 else f"≈ {count:,.0f} {unit}"
    return f"≈ {max(1, round(seconds))} s"
