"""`zetamix compare`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from zetamix.cli.errors import told_in_a_sentence
from zetamix.cli.narrow import blocks
from zetamix.cli.options import check_device, make_stop, parse_train_size
from zetamix.cli.overview import near_path
from zetamix.text import plural


def compare(
    data: Annotated[str, typer.Option(help="A dataset's name, or the path of yours.")] = "digits",
    methods: Annotated[
        str | None,
        typer.Option(
            # in one word it would be cut off on a narrow terminal
            help="Separated by commas: none, mixup:1.0, cutmix, zeta:2.8, local, ... By default "
            "none, mixup, cutmix, zeta:2.4, zeta:2.8, zeta:4.0, without cutmix for points.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 3,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    model: Annotated[
        str | None, typer.Option(help="resnet18, lenet5, any classifier of torchvision.")
    ] = None,
    train_size: Annotated[
        str | None, typer.Option(help="Train on part of the data: a number or a fraction.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the comparison; out/compare-NAME if none is given."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at a time: one for each core, or 4 on a GPU, by default."),
    ] = None,
    backend: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster: auto, or host:port.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any field of the recipe: lr=0.05.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda if there is one.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Stop and save in time: 9m, 1h30m.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where datasets are kept.")] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side in pixels that images of your own get.")
    ] = None,
) -> None:
    """Does it help on my data? Train methods side by side and say what can be claimed.

    Same splits, same schedule, same initial weights for each seed. Leaves report.html,
    results.json, results.csv, and tables in Markdown and LaTeX. The same command goes on after any
    interruption; with more seeds it trains only what is missing.
    """
    # loading what is imported here, and the data, takes its part of a time limit
    began = time.monotonic()
    from zetamix import methods as naming
    from zetamix.experiments.compare import compare as compare_methods
    from zetamix.experiments.compare import make_grid
    from zetamix.metrics import METRICS, primary_metric
    from zetamix.report.compare import write_report

    console = Console()
    check_device(device)
    stop = make_stop(time_limit, began)
    with told_in_a_sentence():
        grid = make_grid(
            data,
            None if methods is None else naming.parse_list(methods),
            out=out,
            seeds=seeds,
            train_size=parse_train_size(train_size),
            model=model,
            epochs=epochs,
            changes=change or [],
            data_dir=data_dir,
            size=size,
        )
        _announce(console, grid)
        primary = METRICS[primary_metric(grid.dataset.splits["test"].counts())]
        watched = _overview(
            console, primary.short, lambda scores: primary.format(scores[primary.name])
        )
        with stop, watched as watch:
            comparison = compare_methods(
                grid,
                jobs=jobs,
                backend=backend,
                address=address,
                device=device,
                compile=_compiles(grid, device),
                watch=watch,
                stop=stop,
            )
        _print(console, comparison)
        if comparison.records:
            page = near_path(write_report(comparison, grid.out, _facts(comparison)))
            console.print(f"[dim]in[/dim] {page}", highlight=False, soft_wrap=True)
        if not comparison.complete and not comparison.failures:
            console.print(_why_stopped(comparison, stop), highlight=False)
            raise typer.Exit(0 if stop.signal is None else 128 + stop.signal)
        if comparison.failures:
            raise typer.Exit(1)


def _compiles(grid: Any, device: str | None) -> bool:
    import torch

    from zetamix.train.cuda_graph import compiling_pays

    steps = grid.recipe.epochs * (len(grid.dataset.train) // grid.recipe.batch_size)
    on_gpu = torch.cuda.is_available() and device != "cpu"
    return compiling_pays(torch.device("cuda" if on_gpu else "cpu"), steps)


def _overview(console: Console, name: str, show: Any) -> Any:
    from zetamix.cli.overview import OverviewTable

    return OverviewTable(console, name, show)


def _announce(console: Console, grid: Any) -> None:
    from zetamix.report.compare_earlier import what_differs

    dataset, recipe = grid.dataset, grid.recipe
    runs = f"{plural(len(grid.methods), 'method')} × {plural(len(grid.seeds), 'seed')}"
    augmentation = "no augmentation" if recipe.augmentation == "none" else recipe.augmentation
    console.print(
        f"[bold]{dataset.name}[/bold]: {len(dataset.train):,} to train, {len(dataset.test):,} to "
        f"test, {dataset.num_classes} classes · {plural(len(grid.places), 'run')} ({runs}) · "
        f"{recipe.model}, {plural(recipe.epochs, 'epoch')}, batch {recipe.batch_size}, "
        f"{augmentation} · recipe: {recipe.source}",
        highlight=False,
    )
    for note in dataset.notes:
        console.print(f"[dim]{note}[/dim]", highlight=False)
    differs = what_differs(grid)
    if differs:
        console.print(
            f"{near_path(grid.out)} holds a report of other settings ({'; '.join(differs)}). It "
            "will be replaced; its runs stay.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if len(grid.methods) == 1:
        console.print(
            "One method is only measured, not compared: name others beside it, such as --methods "
            "none,zeta:2.8.",
            highlight=False,
            soft_wrap=True,
        )


def _why_stopped(comparison: Any, stop: Any) -> str:
    saved = "Everything is saved; the same command goes on."
    if stop.terminated:
        return f"Stopped. {saved}"
    if not comparison.trained and not any(far.gained for far in comparison.reached.values()):
        return (
            f"The time is up, and hardly a step was trained: starting takes most of {stop.limit:g} "
            f"seconds here. Give a longer --time-limit. {saved}"
        )
    return f"The time is up. {saved}"


def _print(console: Console, comparison: Any) -> None:
    from zetamix.report.compare_tables import difference_table, main_table
    from zetamix.report.compare_text import read

    shown = []
    if comparison.records:
        table = main_table(comparison)
        *quality, nll, ece, seeds = range(1, len(table.columns))
        # where there is no room for all, calibration goes below
        groups = [*([place] for place in quality), [nll, ece, seeds]]
        shown += blocks(table, console.width, groups)
        if comparison.compared:
            table = difference_table(comparison)
            # each difference beside its p
            pairs = [[place, place + 1] for place in range(1, len(table.columns), 2)]
            shown += blocks(table, console.width, pairs)
    for block in shown:
        console.print(block)
        console.print()
    for word, sentence in read(comparison):
        console.print(f"[bold]{word}[/bold]  {sentence}", highlight=False)


def _facts(comparison: Any) -> dict[str, str]:
    import torch

    from zetamix.provenance import machine_info

    on_gpu = any("gpu" in record.machine for record in comparison.records.values())
    device = "cuda" if on_gpu and torch.cuda.is_available() else "cpu"
    return machine_info(torch.device(device))
