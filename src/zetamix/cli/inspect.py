"""`zetamix inspect`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from zetamix.cli.errors import told_in_a_sentence
from zetamix.cli.options import parse_device

METHODS = "mixup,zeta:2.4,zeta:2.8,zeta:4.0"


def inspect(
    data: Annotated[str, typer.Option(help="A dataset's name, or the path of yours.")] = "digits",
    methods: Annotated[
        str, typer.Option(help="mixup:1.0, cutmix, zeta:2.8, local, separated by commas.")
    ] = METHODS,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report; out/inspect-NAME if none is given.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="How many samples to measure.")] = 2000,
    neighbours: Annotated[int, typer.Option(min=2, help="Of local dimension.")] = 128,
    batch: Annotated[int, typer.Option(min=2, help="Samples that are mixed together.")] = 128,
    gammas: Annotated[
        str | None, typer.Option(help="γ for the curve of local dimension: 1,2,2.8,4.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="Change of local dimension that counts as none.")
    ] = 0.1,
    oracle: Annotated[
        str, typer.Option(help="Model that judges outputs: auto, lenet5, resnet18, ...; or none.")
    ] = "auto",
    oracle_epochs: Annotated[
        int | None, typer.Option(min=1, help="How long to train the oracle.")
    ] = None,
    oracle_size: Annotated[
        int, typer.Option(min=16, help="Larger images are scaled down to this for the oracle.")
    ] = 64,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side of your images, once they are read.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda if there is one.")] = None,
    memory_gb: Annotated[float, typer.Option(min=0.01, help="For local dimension.")] = 1.0,
    data_dir: Annotated[Path | None, typer.Option(help="Where datasets are kept.")] = None,
) -> None:
    """Measure whether synthetic data is any good, before training anything on it.

    Writes a page with figures and a plain-words reading, a JSON, and every figure as PNG and SVG:
    local dimension, realism and label correctness, diversity and richness, for each method.
    """
    from zetamix import data as datasets
    from zetamix import methods as naming
    from zetamix.experiments.inspect import InspectionError, Settings, inspect_dataset, write_report
    from zetamix.provenance import machine_info
    from zetamix.report.inspect_text import read
    from zetamix.results.inspection import GAMMAS

    console = Console()
    place = parse_device(device)
    settings = Settings(
        samples=samples,
        batch=batch,
        neighbours=neighbours,
        gammas=GAMMAS if gammas is None else _gammas(gammas),
        tolerance=tolerance,
        seed=seed,
        oracle=oracle,
        oracle_epochs=oracle_epochs,
        oracle_size=oracle_size,
        memory_gb=memory_gb,
    )
    with told_in_a_sentence():
        chosen = naming.parse_list(methods)
        try:
            with Bars(Console(stderr=True)) as bars:
                bars("reading the data", 0, 1)
                dataset = datasets.load(data, data_dir=data_dir, size=size)
                bars("reading the data", 1, 1)
                folder = out or Path("out") / f"inspect-{dataset.name}"
                _check_writable(folder)
                found = inspect_dataset(dataset, chosen, settings, device=place, progress=bars)
                bars("drawing the report", 0, 1)
                page = write_report(found, folder, machine_info(place))
        except InspectionError as error:
            Console(stderr=True, soft_wrap=True).print(str(error), style="red", markup=False)
            raise typer.Exit(1) from None
    for word, text in read(found):
        console.print(f"[bold]{word}[/bold]  {text}", highlight=False)
    for note in found.notes:
        console.print(f"[dim]{note}[/dim]", highlight=False)
    console.print(f"[dim]in {page}[/dim]", highlight=False, soft_wrap=True)


class Bars(Progress):
    """A bar for each stage on a terminal; elsewhere a line when it begins."""

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


def _gammas(text: str) -> tuple[float, ...]:
    try:
        gammas = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        gammas = ()
    if not gammas or not all(0 < gamma < float("inf") for gamma in gammas):
        raise typer.BadParameter(
            f"expected positive numbers separated by commas, got {text!r}", param_hint="--gammas"
        )
    return gammas


def _check_writable(folder: Path) -> None:
    """Before anything is measured: a result that cannot be kept is a waste."""
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".zetamix.part"
        probe.touch()
        probe.unlink()
        if new:
            folder.rmdir()
    except OSError as error:
        raise typer.BadParameter(
            f"cannot write to {folder}: {error.strerror}", param_hint="--out"
        ) from None
