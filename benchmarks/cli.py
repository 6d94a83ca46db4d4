"""`zetamix bench`."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from zetamix_lab.cli import options
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.cli.live import print_line

if TYPE_CHECKING:
    from benchmarks.run import Case, Row

GPU_SHAPES = "32x3x224x224,128x3x32x32,128x3x224x224,256x3x224x224"
CPU_SHAPES = "128x3x32x32,32x3x96x96,128x3x96x96,32x3x224x224,128x3x224x224,256x3x224x224"
LAYOUTS = ("contiguous", "channels_last")
DTYPES = ("float32", "bfloat16", "float16", "uint8")


def bench(
    device: options.Device = None,
    shapes: Annotated[
        str | None, typer.Option(help="Comma-separated shapes of batches, such as 32x3x224x224.")
    ] = None,
    dtypes: Annotated[
        str | None, typer.Option(help="Comma-separated: float32, bfloat16, float16, uint8, tf32.")
    ] = None,
    layouts: Annotated[
        str | None,
        typer.Option(help="Comma-separated: contiguous, channels_last. On a CPU both by default."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=5, help="Rounds of timing on a CPU.")] = 25,
    scaling: Annotated[
        bool,
        typer.Option(
            "--scaling",
            help="Instead, measure time and memory against batch size, number of sources and image "
            "size, in about a minute. Writes scaling.png, scaling.svg and scaling.json.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Output folder of --scaling. Default: out/bench-scaling.")
    ] = None,
    json_file: options.Json = None,
) -> None:
    """Benchmark mixing against a plain copy and against other installed libraries.

    Results are checked against float64 before anything is timed.
    """
    if scaling and (shapes or dtypes or layouts):
        raise typer.BadParameter(
            "cannot be combined with --shapes, --dtypes or --layouts",
            param_hint="--scaling",
        )
    # silences torch's profiler, which measures memory and would print a line for each call
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch

    from benchmarks.run import Case, measure
    from zetamix_lab.provenance import machine_info, machine_summary

    console = options.open_console(json_file)
    torch_device = options.parse_device(device)
    is_gpu = torch_device.type == "cuda"
    if torch_device.index is not None and is_gpu:
        # streams, graphs and events belong to the current device
        torch.cuda.set_device(torch_device)
    if scaling:
        folder = out or Path("out") / "bench-scaling"
        with report_errors():
            _measure_scaling(console, torch_device, folder, rounds, json_file)
        return
    cases = [
        Case(
            shape,
            torch.float32 if name == "tf32" else getattr(torch, name),
            torch_device,
            tf32=name == "tf32",
            channels_last=layout == "channels_last",
        )
        for shape in _parse_shapes(shapes or (GPU_SHAPES if is_gpu else CPU_SHAPES))
        for name in _parse_dtypes(dtypes, is_gpu)
        for layout in _parse_layouts(layouts, is_gpu)
    ]
    machine = machine_info(torch_device)
    rows: list[Row] = []

    def results() -> dict[str, Any]:
        return {"machine": machine, "rows": [asdict(row) for row in rows]}

    for case in track(cases, "timing", console=Console(stderr=True), transient=True):
        torch.backends.cuda.matmul.fp32_precision = "tf32" if case.tf32 else "ieee"
        with report_errors():
            try:
                timed = measure(case, rounds)
            except KeyboardInterrupt:
                kept = "" if json_file is None else f" Finished cases are in {json_file}."
                print_line(console, f"Interrupted at {case.label}.{kept}")
                raise typer.Exit(130) from None
        rows += timed
        console.print(_make_table(case, timed))
        # after every case, so that an interrupted benchmark keeps the finished ones
        if json_file != options.STDOUT:
            options.write_results(json_file, results())
    if json_file == options.STDOUT:
        options.write_results(json_file, results())
    console.print(machine_summary(machine), highlight=False)


def _measure_scaling(
    console: Console, device: Any, folder: Path, rounds: int, json_file: Path | None
) -> None:
    from benchmarks.scaling import measure_point, scaling_points
    from benchmarks.scaling_report import scaling_picture
    from zetamix_lab.provenance import machine_info, machine_summary

    options.check_writable(folder, "--out")
    machine = machine_info(device)
    rows: list[dict[str, Any]] = []
    file = folder / "scaling.json"
    points = scaling_points()
    for point in track(points, "measuring", console=Console(stderr=True), transient=True):
        rows += [asdict(row) for row in measure_point(point, device, rounds)]
        # after every point, so that an interrupted measurement keeps the finished ones
        options.write_results(file, {"machine": machine, "rows": rows})
    _, png = scaling_picture(rows, machine_summary(machine)).save(folder)
    print_line(console, f"Figure written to {png}")
    options.write_results(json_file, file)


def _parse_shapes(text: str) -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = []
    for part in text.split(","):
        try:
            shape: tuple[int, ...] = tuple(int(size) for size in part.strip().split("x"))
        except ValueError:
            shape = ()
        if len(shape) != 4 or min(shape) < 1 or shape[0] < 2:
            raise typer.BadParameter(
                "expected batch x channels x height x width with a batch of at least 2, such as "
                f"32x3x224x224, got {part!r}",
                param_hint="--shapes",
            )
        shapes.append(shape)
    return shapes


def _parse_dtypes(text: str | None, is_gpu: bool) -> list[str]:
    choices = ["float32", "tf32", *DTYPES[1:]] if is_gpu else list(DTYPES)
    if text is None:
        return choices if is_gpu else ["float32"]
    return _parse_names(text, choices, "--dtypes")


def _parse_layouts(text: str | None, is_gpu: bool) -> list[str]:
    if text is None:
        return ["contiguous"] if is_gpu else list(LAYOUTS)
    return _parse_names(text, LAYOUTS, "--layouts")


def _parse_names(text: str, choices: Sequence[str], option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in choices:
            raise typer.BadParameter(
                f"expected names from {', '.join(choices)}, got {name!r}", param_hint=option
            )
    return names


def _make_table(case: "Case", rows: list["Row"]) -> Table:
    from benchmarks.contenders import COPY, OURS, PEERS
    from benchmarks.run import fastest_peer

    table = Table(title=case.label, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    modes = {row.mode for row in rows}
    ours = {row.mode: row.median_us for row in rows if row.contender == OURS}
    in_ms = ours["eager"] >= 1000
    # on 80 columns, names are wrapped so that no number is cut off
    table.add_column("", overflow="fold")
    if len(modes) > 1:
        table.add_column("mode", style="dim", no_wrap=True)
    for heading in (f"median {'ms' if in_ms else 'µs'}", "p20", "p80", "× copy", "× ZetaMix"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        times = [row.median_us, row.p20_us, row.p80_us]
        texts = [f"{time / 1000:,.2f}" if in_ms else f"{time:,.1f}" for time in times]
        relative = "" if row.contender == COPY else f"{row.median_us / ours[row.mode]:.2f}"
        style = "bold" if row.contender == OURS else None
        mode = [row.mode] if len(modes) > 1 else []
        table.add_row(row.contender, *mode, *texts, f"{row.times_copy:.2f}", relative, style=style)
    best = fastest_peer(rows, PEERS)
    if best is not None:
        peer, factor = best
        ratio = f"{factor:.1f} × slower" if factor >= 1 else f"{1 / factor:.1f} × faster"
        table.caption = f"fastest other library: {peer}, {ratio} than ZetaMix (eager)"
    return table
