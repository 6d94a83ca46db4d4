"""`zetamix tune`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from zetamix.cli.errors import report_errors
from zetamix.cli.live import short_path
from zetamix.cli.options import check_device, make_stop, parse_train_size
from zetamix.cli.standing import Watcher
from zetamix.text import plural

SPACE = "gamma=1..6,weight_decay=log:5e-5..1e-3"


def tune(
    data: Annotated[str, typer.Option(help="A dataset's name, or the path of yours.")] = "digits",
    space: Annotated[
        str | None,
        typer.Option(
            help="What to search: ranges, log: ranges, a|b|c or one value.",
            show_default="see above",
        ),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(help="Train every value instead: gamma=1.8:5.0:0.2 is the paper's analysis."),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Models in all, with those that are there already.", show_default="200"
        ),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(help="tpe, random or grid.", show_default="tpe")
    ] = None,
    prune: Annotated[
        bool | None,
        typer.Option(help="Stop hopeless trials early.", show_default="yes, except in a grid"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Models at each place of a grid.", show_default="3")
    ] = None,
    test_seeds: Annotated[
        int, typer.Option(min=0, help="Models for the test split, in the end; 0 leaves it unread.")
    ] = 3,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What to choose by: error, accuracy, balanced_accuracy, f1_macro, auc, nll, ...",
            show_default="error; balanced_accuracy where classes differ in size",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the search.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    model: Annotated[
        str | None, typer.Option(help="resnet18, lenet5, any classifier of torchvision.")
    ] = None,
    train_size: Annotated[
        str | None, typer.Option(help="Train on part of the data: a number or a fraction.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any field of the recipe: lr=0.05.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study.", show_default="out/tune-NAME")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            envvar="ZETAMIX_STORAGE",
            help="postgresql://user@host/name, to share a study between machines.",
            show_default="study.db in --out",
        ),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Its name in the storage.", show_default="tune-NAME")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Trials at a time.", show_default="one for each core; 4 on a GPU"),
    ] = None,
    backend: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster: auto, or host:port.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda if there is one.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Stop and save in time: 9m, 1h30m.")
    ] = None,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 60,
    data_dir: Annotated[Path | None, typer.Option(help="Where datasets are kept.")] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side in pixels that images of your own get.")
    ] = None,
) -> None:
    """Which γ for my data, how sure, how sensitive? Search on the validation split, then test.

    What is searched by default: gamma=1..6,weight_decay=log:5e-5..1e-3

    Leaves report.html, results.json, trials.csv and figures. The same command goes on after any
    interruption, and with more --trials trains only what is missing; several at a time share one
    study.
    """
    # loading what is imported here, and the data, takes its part of a time limit
    began = time.monotonic()
    from zetamix.experiments.tune import make_plan, make_question
    from zetamix.experiments.tune.run import tune as search
    from zetamix.report.tune import write_report

    console = Console()
    check_device(device)
    stop = make_stop(time_limit, began)
    kind, what = _kind(space, grid, sampler)
    with report_errors():
        _hide_password(storage)
        question = make_question(
            data,
            what,
            metric=metric,
            seed=seed,
            train_size=parse_train_size(train_size),
            model=model,
            epochs=epochs,
            changes=change or [],
            data_dir=data_dir,
            size=size,
        )
        plan = make_plan(question, kind, trials, prune, seeds)
        name = f"tune-{question.dataset.name}" + ("-grid" if kind == "grid" else "")
        folder = out or Path("out") / name
        _announce(console, question, plan)
        with stop, Watcher(console, question) as watch:
            found = search(
                question,
                plan,
                out=folder,
                storage=storage,
                name=study or name,
                test_seeds=test_seeds,
                jobs=jobs,
                backend=backend,
                address=address,
                device=device,
                compile=_compiles(question, device),
                save_every=save_every,
                watch=watch,
                stop=stop,
            )
        page = write_report(found, folder, _facts())
        _print(console, found, page)
        if not found.finished or (test_seeds and found.chosen and not found.tested):
            why = "Stopped." if stop.terminated else "The time is up."
            console.print(f"{why} Everything is saved; the same command goes on.")
            raise typer.Exit(0 if stop.signal is None else 128 + stop.signal)


def _kind(space: str | None, grid: str | None, sampler: str | None) -> tuple[str, str]:
    """The sampler and the space, which `--grid` gives both of."""
    if grid is None:
        return sampler or "tpe", SPACE if space is None else space
    if space is not None:
        raise typer.BadParameter("give --space or --grid, not both", param_hint="--grid")
    if sampler not in (None, "grid"):
        raise typer.BadParameter(
            f"a grid is trained whole, and not drawn by {sampler}: leave --sampler out",
            param_hint="--grid",
        )
    return "grid", grid


def _hide_password(storage: str | None) -> None:
    """The command is kept with every result; a password in it is not."""
    import sys

    from zetamix.experiments.tune.question import without_password

    if storage is not None:
        sys.argv = [arg.replace(storage, without_password(storage)) for arg in sys.argv]


def _compiles(question: Any, device: str | None) -> bool:
    import torch

    from zetamix.train.cuda_graph import compiling_pays

    recipe = question.recipe
    steps = recipe.epochs * (len(question.dataset.train) // recipe.batch_size)
    on_gpu = torch.cuda.is_available() and device != "cpu"
    return compiling_pays(torch.device("cuda" if on_gpu else "cpu"), steps)


def _announce(console: Console, question: Any, plan: Any) -> None:
    from zetamix.metrics import METRICS

    dataset, recipe = question.dataset, question.recipe
    test = 0 if dataset.test is None else len(dataset.test)
    console.print(
        f"[bold]{dataset.name}[/bold]: {len(dataset.train):,} to train, {len(dataset.val):,} to "
        f"choose by {METRICS[question.metric].title}, {test:,} to test what is chosen · "
        f"{question.space.text} · {plural(plan.trials, 'trial')}, {plan.sampler} · "
        f"{recipe.model}, {plural(recipe.epochs, 'epoch')}, batch {recipe.batch_size} · recipe: "
        f"{recipe.source}",
        highlight=False,
    )
    for note in dataset.notes:
        console.print(f"[dim]{note}[/dim]", highlight=False)


def _print(console: Console, found: Any, page: Path) -> None:
    from zetamix.report.tune import results_table
    from zetamix.report.tune_text import read

    if found.tested:
        table = results_table(found)
        shown = Table(box=None, header_style="bold", pad_edge=False)
        # the measure that was chosen by; the page has all
        for number, head in enumerate(table.heads[:2]):
            shown.add_column(head.name, justify="left" if number == 0 else "right")
        for row in table.cells:
            shown.add_row(*(cell.text() for cell in row[:2]))
        console.print(shown)
    for word, sentence in read(found):
        console.print(f"[bold]{word}[/bold]  {sentence}", highlight=False)
    console.print(f"[dim]in[/dim] {short_path(page)}", highlight=False, soft_wrap=True)


def _facts() -> dict[str, str]:
    import torch

    from zetamix.provenance import machine_info

    return machine_info(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
