"""`zetamix bench`."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from zetamix.atomic_io import write_json
from zetamix.bench.contenders import COPY, OURS, PEERS
from zetamix.bench.run import Case, Row, WrongResultError, fastest_peer, measure
from zetamix.cli.options import parse_device
from zetamix.provenance import machine_info, machine_summary

SHAPES = "32x3x224x224,128x3x32x32,128x3x224x224,256x3x224x224"
CPU_SHAPES = "128x3x32x32,32x3x96x96,128x3x96x96,32x3x224x224,128x3x224x224,256x3x224x224"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def bench(
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; cuda where there is one.")
    ] = None,
    shapes: Annotated[
        str | None, typer.Option(help="Batches to mix, such as 32x3x224x224, separated by commas.")
    ] = None,
    dtypes: Annotated[
        str | None, typer.Option(help="float32, bfloat16, float16, tf32, separated by commas.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=5, help="CPU: how often each one is timed.")] = 25,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all rows and the machine here.")
    ] = None,
) -> None:
    """Measure mixing beside a plain copy and beside other libraries, in one run.

    Results are checked against float64 first; nothing is timed that is not right.
    """
    console = Console()
    place = parse_device(device)
    if place.type == "cuda":
        # streams, graphs and events are those of the current device
        torch.cuda.set_device(place)
    cases = [
        Case(shape, DTYPES.get(name, torch.float32), place, tf32=name == "tf32")
        for shape in _shapes(shapes or (SHAPES if place.type == "cuda" else CPU_SHAPES))
        for name in _dtypes(dtypes, place)
    ]
    if json_file is not None:
        _check_writable(json_file)
    facts = machine_info(place)
    rows: list[Row] = []
    for case in track(cases, "measuring", console=Console(stderr=True), transient=True):
        torch.backends.cuda.matmul.fp32_precision = "tf32" if case.tf32 else "ieee"
        try:
            measured = measure(case, rounds)
        except WrongResultError as wrong:
            console.print(f"[red]{wrong}[/red]")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            done = f"Interrupted at {case.label}."
            console.print(done if json_file is None else f"{done} What was done is in {json_file}.")
            raise typer.Exit(130) from None
        rows += measured
        console.print(_table(case, measured))
        # after every case, so that an interrupted run keeps what it has
        if json_file is not None:
            write_json(json_file, {"machine": facts, "rows": [row.as_dict() for row in rows]})
    console.print(machine_summary(facts), highlight=False)


def _shapes(text: str) -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = []
    for part in text.split(","):
        try:
            shape: tuple[int, ...] = tuple(int(size) for size in part.strip().split("x"))
        except ValueError:
            shape = ()
        if len(shape) != 4 or min(shape) < 1 or shape[0] < 2:
            raise typer.BadParameter(
                f"expected batch x channels x height x width, such as 32x3x224x224, with a batch "
                f"of at least 2; got {part!r}",
                param_hint="--shapes",
            )
        shapes.append(shape)
    return shapes


def _dtypes(text: str | None, device: torch.device) -> list[str]:
    if text is None:
        return ["float32", "tf32", "bfloat16", "float16"] if device.type == "cuda" else ["float32"]
    known = [*DTYPES, "tf32"]
    for name in text.split(","):
        if name.strip() not in known:
            raise typer.BadParameter(
                f"expected some of {', '.join(known)}, got {name!r}", param_hint="--dtypes"
            )
    if "tf32" in text and device.type == "cpu":
        raise typer.BadParameter("TF32 is a GPU's; leave tf32 out", param_hint="--dtypes")
    return [name.strip() for name in text.split(",")]


def _table(case: Case, rows: list[Row]) -> Table:
    table = Table(title=case.label, title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("mode", style="dim")
    for name in ("median µs", "p20", "p80", "× copy", "× zetamix"):
        table.add_column(name, justify="right")
    ours = {row.mode: row.median_us for row in rows if row.contender == OURS}
    for row in rows:
        digits = 1 if row.median_us < 1000 else 0
        times = [f"{t:,.{digits}f}" for t in (row.median_us, row.p20_us, row.p80_us)]
        relative = "" if row.contender == COPY else f"{row.median_us / ours[row.mode]:.2f}"
        style = "bold" if row.contender == OURS else None
        table.add_row(
            row.contender, row.mode, *times, f"{row.times_copy:.2f}", relative, style=style
        )
    best = fastest_peer(rows, PEERS)
    if best is not None:
        peer, factor = best
        how = f"{factor:.1f} × slower" if factor >= 1 else f"{1 / factor:.1f} × faster"
        table.caption = f"the fastest other, {peer}, is {how} than zetamix (eager)"
    return table


def _check_writable(path: Path) -> None:
    """Before anything is measured: a result that cannot be kept is a waste."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        path.with_name(path.name + ".part").touch()
        path.with_name(path.name + ".part").unlink()
    except OSError as error:
        raise typer.BadParameter(f"cannot write there: {error}", param_hint="--json") from None
