"""`zetamix train`."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from zetamix.cli.errors import told_in_a_sentence
from zetamix.cli.narrow import fold_name, room_for_names
from zetamix.cli.options import make_stop, parse_device, parse_seeds, parse_train_size
from zetamix.text import plural

# runs whose epoch is told one by one when a command is stopped
STANDINGS = 4


def train(
    data: Annotated[str, typer.Option(help="A dataset's name, or the path of yours.")] = "digits",
    method: Annotated[
        str, typer.Option(help="none, mixup:1.0, cutmix, zeta:2.8, local, separated by commas.")
    ] = "zeta:2.8",
    model: Annotated[
        str | None, typer.Option(help="resnet18, lenet5, any classifier of torchvision.")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="A count, or a list: 0,1,2.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    train_size: Annotated[
        str | None, typer.Option(help="Train on part of the data: a number or a fraction.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side of your own images, as data prepare takes it.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any field of the recipe: lr=0.05.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda if there is one.")] = None,
    concurrent: Annotated[
        int, typer.Option(min=1, help="Runs to train side by side in this process.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder of a single run, or of all runs.")
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Stop and save in time: 9m, 1h30m.")
    ] = None,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 60,
    compile: Annotated[
        bool | None, typer.Option(help="torch.compile; by default for long runs on a GPU.")
    ] = None,
    log: Annotated[str | None, typer.Option(help="tensorboard or wandb, beside the files.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where datasets are kept.")] = None,
) -> None:
    """Train a model by its dataset's recipe, the paper's where it has one.

    Leaves a folder per run: cell.json, metrics.jsonl, final.pt and record.json. Rerun the
    same command to resume after any interruption; it trains only what is missing.
    """
    # loading what is imported here, and the data, takes its part of a time limit
    began = time.monotonic()
    from zetamix import methods
    from zetamix.train import Run, make_recipe
    from zetamix.train.cuda_graph import compiling_pays
    from zetamix.train.distributed import leave
    from zetamix.train.run_folder import hold
    from zetamix.train.side_by_side import train as train_runs

    console = Console()
    stop = make_stop(time_limit, began)
    with told_in_a_sentence():
        place, ranks = _place(device)
        dataset = _load(data, data_dir, train_size, size)
        recipe = make_recipe(dataset, model=model, epochs=epochs, changes=change or [])
        chosen = methods.parse_list(method)
        seeds = list(parse_seeds(seed, 1, "--seed"))
        folders = _folders(out, dataset.name, chosen, seeds)
        steps = len(folders) * recipe.epochs * (len(dataset.train) // recipe.batch_size)
        console.quiet = not ranks.leads
        with hold(folders.values()) if ranks.leads else nullcontext():
            runs = [
                Run(
                    dataset,
                    each,
                    recipe,
                    seed=number,
                    out=folders[each, number],
                    device=place,
                    compile=compiling_pays(place, steps) if compile is None else compile,
                    ranks=ranks,
                    save_every=save_every,
                )
                for each in chosen
                for number in seeds
            ]
            _announce(console, dataset, recipe, runs, place)
            # one process of many talks to the user and to loggers
            with stop, _watcher(console, runs, log if ranks.leads else None) as watch:
                result = train_runs(runs, jobs=concurrent, watch=watch, stop=stop)
        leave()
        records = result.records
        _report(console, runs, records)
        for run, failure in result.failures.items():
            Console(stderr=True, soft_wrap=True).print(
                f"{run.name}: {failure.message}", style="red", markup=False, highlight=False
            )
        if len(records) + len(result.failures) < len(runs):
            console.print(_standing(runs), highlight=False)
            why = "Stopped." if stop.terminated else "The time is up."
            console.print(f"{why} Everything is saved; rerun the same command to resume.")
            # as a shell counts a signal: 143 for SIGTERM, 130 for Ctrl-C
            raise typer.Exit(0 if stop.signal is None else 128 + stop.signal)
        if result.failures:
            raise typer.Exit(1)


def _place(device: str | None) -> tuple[Any, Any]:
    import torch

    from zetamix.train.distributed import join

    ranks, place = join(parse_device(device))
    # which convolution is fastest is tried out once per shape; shapes never change here
    torch.backends.cudnn.benchmark = place.type == "cuda"
    return place, ranks


def _load(data: str, data_dir: Path | None, train_size: str | None, side: int | None) -> Any:
    from zetamix import data as datasets

    dataset = datasets.load(data, data_dir=data_dir, size=side)
    if dataset.test is None:
        dataset = datasets.with_reported_split(dataset)
    size = parse_train_size(train_size)
    try:
        return dataset.with_train_size(size)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--train-size") from None


def _folders(out: Path | None, name: str, chosen: list[Any], seeds: list[int]) -> dict[Any, Path]:
    """A folder for each run: `out` itself for a single one, unless it holds several already."""
    out_is_run = out is not None and (out / "cell.json").exists()
    if out is not None and len(chosen) == len(seeds) == 1:
        if out_is_run or not any(out.glob("*/cell.json")):
            return {(chosen[0], seeds[0]): out}
    elif out_is_run:
        raise typer.BadParameter(
            f"{out} is the folder of a single run; choose another for several", param_hint="--out"
        )
    out = Path("runs") / name if out is None else out
    return {
        (each, seed): out / f"{each.label.replace(':', '-')}-s{seed}"
        for each in chosen
        for seed in seeds
    }


def _watcher(console: Console, runs: list[Any], log: str | None) -> Any:
    from zetamix.cli.progress import Watcher

    return Watcher(console, runs, log)


def _announce(console: Console, dataset: Any, recipe: Any, runs: list[Any], place: Any) -> None:
    from zetamix.provenance import machine_info, machine_summary

    test = len(dataset.test) if dataset.test is not None else 0
    augmentation = "no" if recipe.augmentation == "none" else recipe.augmentation
    console.print(
        f"[bold]{dataset.name}[/bold]: {len(dataset.train):,} to train, {test:,} to test, "
        f"{dataset.num_classes} classes, {_form(dataset.shape)} · {recipe.model}, "
        f"{plural(recipe.epochs, 'epoch')}, batch {recipe.batch_size}, {augmentation} "
        f"augmentation · recipe: {recipe.source}",
        highlight=False,
    )
    done = sum(run.record is not None for run in runs)
    if done:
        console.print(
            f"{done} of {plural(len(runs), 'run')} finished earlier: shown as recorded",
            highlight=False,
        )
    for note in dataset.notes:
        console.print(f"[dim]{note}[/dim]", highlight=False)
    console.print(f"[dim]{machine_summary(machine_info(place))}[/dim]", highlight=False)


def _form(shape: tuple[int, ...]) -> str:
    """What a sample is: the size of an image, or how many numbers."""
    return " × ".join(map(str, shape)) if len(shape) > 1 else plural(shape[0], "number") + " each"


def _report(console: Console, runs: list[Any], records: list[Any]) -> None:
    if not records:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    heads = ["seed", "error %", "bal.\nacc. %", "macro\nF1 %", "AUC", "ms/step", "time"]
    with_best = any(record.best is not None for record in records)
    if with_best:
        heads.append("best\nval")
    # where a terminal is narrow a method's name is folded, and no number cut off
    table.add_column("method", overflow="fold")
    for name in heads:
        table.add_column(name, justify="right", no_wrap=True)
    rows = []
    for record in records:
        last, best = record.last, record.best
        cells = [f"{100 * last[key]:.2f}" for key in ("error", "balanced_accuracy", "f1_macro")]
        minutes, seconds = divmod(round(record.wall_s), 60)
        row = [record.cell.method, str(record.cell.seed), *cells, f"{last['auc']:.4f}"]
        # a run of a step or two has none that can be timed
        row += [f"{record.step_ms:.2f}" if record.step_ms else "–", f"{minutes}m {seconds:02d}s"]
        if with_best:
            row.append("" if best is None else f"{100 * best['error']:.2f}")
        rows.append(row)
    columns = [list(column) for column in zip(heads, *(row[1:] for row in rows), strict=True)]
    room = room_for_names(columns, console.width)
    for name, *cells in rows:
        table.add_row(fold_name(name, room), *cells)
    console.print(table)
    if with_best:
        console.print(
            "[dim]best val: test error % of the epoch with the best validation score[/dim]"
        )
    folders = [run.folder.path for run in runs if run.record is not None]
    place = folders[0] if len(folders) == 1 else folders[0].parent
    console.print(f"[dim]in {place}[/dim]", highlight=False, soft_wrap=True)


def _standing(runs: list[Any]) -> str:
    """How far the unfinished runs are."""
    begun = [run for run in runs if run.record is None and run.trainer is not None]
    done = sum(run.record is not None for run in runs)
    parts = [f"{run.name} {run.status}" for run in begun]
    if len(parts) > STANDINGS:
        parts[STANDINGS - 1 :] = [f"{plural(len(parts) - STANDINGS + 1, 'other run')} begun"]
    if len(runs) > 1:
        parts.insert(0, f"{done} of {len(runs)} runs finished")
    return ", ".join(parts) or "No run was begun."
