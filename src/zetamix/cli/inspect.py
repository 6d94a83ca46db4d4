"""`zetamix inspect`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from zetamix.cli import options
from zetamix.cli.errors import report_errors
from zetamix.cli.live import print_findings, print_line, short_path

if TYPE_CHECKING:
    from zetamix.results.inspection import Inspection

METHODS = "mixup,switch,zeta:2.8,zetamix"


def inspect(
    data: options.Data = "digits",
    methods: options.Methods = None,
    out: options.Out = None,
    samples: Annotated[int, typer.Option(min=1, help="Number of samples to measure.")] = 2000,
    neighbours: Annotated[
        int, typer.Option(min=2, help="k of the k-nearest-neighbour dimension estimate.")
    ] = 128,
    batch_size: Annotated[int, typer.Option(min=2, help="Samples per mixed batch.")] = 128,
    gammas: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated values of γ for the curve of local dimension, such as 1,2,2.8,4. "
            "All other measures are for --methods."
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(min=0, max=1, help="Relative change of dimension still counted as preserved."),
    ] = 0.1,
    oracle: Annotated[
        str,
        typer.Option(help="Classifier that judges outputs: auto, lenet5, resnet18, ... or none."),
    ] = "auto",
    oracle_epochs: Annotated[
        int | None, typer.Option(min=1, help="Number of epochs to train the oracle for.")
    ] = None,
    oracle_size: Annotated[
        int, typer.Option(min=16, help="Downscale larger images to this size for the oracle.")
    ] = 64,
    size: options.Size = None,
    group: options.GroupColumn = None,
    group_pattern: options.GroupPattern = None,
    skip_broken: options.SkipBroken = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampling and the oracle.")] = 0,
    device: options.Device = None,
    memory_gb: Annotated[float, typer.Option(min=0.01, help="Memory limit in GB.")] = 1.0,
    json_file: options.Json = None,
    data_dir: options.DataDir = None,
) -> None:
    """Measure the quality of mixed samples, without training on them.

    Measures local dimension, realism, label correctness and diversity for each method. Writes
    report.html, inspection.json, and every figure as PNG and SVG.
    """
    given = options.parse_methods(methods)
    options.check_data(data)
    from zetamix import data as datasets
    from zetamix.experiments.inspect import inspect_dataset
    from zetamix.methods import choose_methods
    from zetamix.provenance import machine_info
    from zetamix.report.inspect import write_report
    from zetamix.results.inspection import GAMMAS, Settings

    console = options.open_console(json_file)
    torch_device = options.parse_device(device)
    settings = Settings(
        samples=samples,
        batch_size=batch_size,
        neighbours=neighbours,
        gammas=GAMMAS if gammas is None else _parse_gammas(gammas),
        tolerance=tolerance,
        seed=seed,
        oracle=oracle,
        oracle_epochs=oracle_epochs,
        oracle_size=oracle_size,
        memory_gb=memory_gb,
    )
    with report_errors(), StageBars(Console(stderr=True)) as bars:
        bars("reading the data", 0, 1)
        by = options.parse_group(group, group_pattern)
        options.prepare_without_broken(skip_broken, data, data_dir, size, by, bars)
        dataset = datasets.load(data, data_dir=data_dir, size=size, group=by, progress=bars)
        bars("reading the data", 1, 1)
        chosen = given or choose_methods(METHODS, images=len(dataset.shape) == 3)
        folder = out or Path("out") / f"inspect-{dataset.name}"
        options.check_writable(folder, "--out")
        inspection = inspect_dataset(dataset, chosen, settings, device=torch_device, watch=bars)
        bars("drawing the report", 0, 1)
        page = write_report(inspection, folder, machine_info(torch_device))
    _print(console, inspection, page)
    options.write_results(json_file, folder / "inspection.json")


def _print(console: Console, inspection: "Inspection", page: Path) -> None:
    from zetamix.report.inspect_text import summarise

    print_findings(console, summarise(inspection))
    for note in inspection.notes:
        print_line(console, note, style="dim")
    print_line(console, f"Report written to {short_path(page)}", style="dim")


class StageBars(Progress):
    """A progress bar per stage on a terminal, else one line when a stage begins."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=32),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self.stages: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self.stages:
            if not self.console.is_terminal:
                self.console.print(f"{stage} …", highlight=False)
            self.stages[stage] = self.add_task(stage, total=total)
        self.update(self.stages[stage], completed=done)


def _parse_gammas(text: str) -> tuple[float, ...]:
    try:
        gammas = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        gammas = ()
    if not gammas or not all(0 < gamma < float("inf") for gamma in gammas):
        raise typer.BadParameter(
            f"expected positive numbers separated by commas, got {text!r}", param_hint="--gammas"
        )
    return gammas
