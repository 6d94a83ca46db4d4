"""`zetamix reproduce`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from zetamix.cli.artifacts import list_artifacts
from zetamix.cli.errors import report_errors
from zetamix.cli.options import make_stop, parse_device, parse_seeds
from zetamix.text import did_you_mean

PAGE, ALL = "page", "all"
# real results are kept, quick ones are not
RESULTS, QUICK, WORK = Path("results"), Path("out/reproduce-quick"), Path("out/reproduce")

# of a verdict; the rest is in the files
SENTENCES = 6


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Artifacts of --list; all; or page, one for all."),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Every artifact: data, time, cells done and missing.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Stand-ins and shortened recipes: does it run?")
    ] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where datasets are kept.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Stop and save in time: 9m, 1h30m.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Instead of the artifact's: 0,1,2.")] = None,
    datasets: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these: none,mixup,zeta:2.8.")] = None,
    variants: Annotated[
        str | None, typer.Option(help="Augmentation of the recipe: crop-flip, flip, none.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="A shortened recipe, labelled as one.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda if there is one.")] = None,
    concurrent: Annotated[
        int, typer.Option(min=1, help="Models to train side by side in this process.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder of results; results, or out/… if quick.")
    ] = None,
    work: Annotated[Path, typer.Option(help="Folder of unfinished runs.")] = WORK,
) -> None:
    """Reproduce figures and tables of the paper: run what is missing, then draw.

    The same command goes on where the last one stopped. Every result is a record in
    OUT/ID/records.jsonl, with figures and tables beside it.
    """
    # loading what is imported here, and the data, takes its part of a time limit
    began = time.monotonic()
    import torch

    from zetamix.experiments.reproduce import Results, Session

    console = Console()
    folder = out or (QUICK if quick else RESULTS)
    with report_errors():
        results = Results(folder)
        _check_root(data_dir)
        chosen = _ids(ids or [ALL])
        if show_list or not ids:
            listed = _ids([ALL]) if chosen == [PAGE] else chosen
            list_artifacts(console, results, data_dir, parse_device(device), listed, quick)
            return
        if chosen == [PAGE]:
            _page(console, results, quick)
            return
        ask = _ask(chosen, seeds, variants, epochs, quick)
        place = parse_device(device)
        # which convolution is fastest is tried out once per shape; shapes never change here
        torch.backends.cudnn.benchmark = place.type == "cuda"
        stop = make_stop(time_limit, began)
        with _watcher(console) as watch:
            session = Session(
                results,
                work=work / "quick" if quick else work,
                data_dir=data_dir,
                device=place,
                concurrent=concurrent,
                is_quick=quick,
                stop=stop,
                tell=lambda text: console.print(f"[dim]{text}[/dim]", highlight=False),
                watch=watch,
            )
            with stop:
                outcomes = {
                    id: session.run(id, _cells(id, ask, datasets, methods, session))
                    for id in chosen
                }
        _report(console, results, outcomes, quick)
        _leave(console, stop, outcomes, session)


def _check_root(data_dir: Path | None) -> None:
    if data_dir is not None and not data_dir.is_dir():
        raise typer.BadParameter(
            f"expected a folder with datasets, and {data_dir} is none", param_hint="--data-dir"
        )


def _ids(given: list[str]) -> list[str]:
    from zetamix.experiments.reproduce import EXPERIMENTS

    known = [*EXPERIMENTS, ALL, PAGE]
    for id in given:
        if id not in known:
            raise typer.BadParameter(
                f"expected some of {', '.join(known)}, got {id!r}.{did_you_mean(id, known)}",
                param_hint="ID",
            )
    if PAGE in given and len(given) > 1:
        raise typer.BadParameter("page is of all artifacts; give it alone", param_hint="ID")
    return list(EXPERIMENTS) if ALL in given else list(dict.fromkeys(given))


def _ask(
    ids: list[str], seeds: str | None, variants: str | None, epochs: int | None, quick: bool
) -> Any:
    from zetamix.data.augment import AUGMENTATIONS
    from zetamix.experiments.reproduce import EXPERIMENTS, Ask

    if quick and (seeds is not None or epochs is not None):
        raise typer.BadParameter(
            "--quick takes one seed and one epoch by itself; leave --seeds and --epochs out"
        )
    names = None if variants is None else tuple(part.strip() for part in variants.split(","))
    for name in names or ():
        if name not in AUGMENTATIONS:
            raise typer.BadParameter(
                f"expected some of {', '.join(AUGMENTATIONS)}, got {name!r}",
                param_hint="--variants",
            )
    ask = Ask(None if seeds is None else parse_seeds(seeds, 1), names, epochs)
    if ask != Ask() and not any(EXPERIMENTS[id].trains for id in ids):
        raise typer.BadParameter(
            f"--seeds, --variants and --epochs are for artifacts that train models, which "
            f"{' and '.join(ids)} does not"
        )
    return ask


def _cells(id: str, ask: Any, datasets: str | None, methods: str | None, session: Any) -> list[Any]:
    """The cells that were asked for."""
    from zetamix.experiments.reproduce import EXPERIMENTS
    from zetamix.experiments.reproduce.smoke import shorten
    from zetamix.methods import parse_list

    cells = list(EXPERIMENTS[id].cells(ask))
    for option, text, field in (
        ("--datasets", datasets, "dataset"),
        ("--methods", methods, "method"),
    ):
        if text is None:
            continue
        try:
            names = (
                [part.strip() for part in text.split(",")]
                if field == "dataset"
                else [method.label for method in parse_list(text)]
            )
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=option) from None
        known = [name for name in dict.fromkeys(getattr(cell, field) for cell in cells) if name]
        for name in names:
            if name not in known:
                has = ", ".join(known) or f"no {field}s to choose from"
                raise typer.BadParameter(
                    f"{id} has {has}; got {name!r}.{did_you_mean(name, known)}", param_hint=option
                )
        cells = [cell for cell in cells if getattr(cell, field) in names]
    return shorten(cells, session.device) if session.is_quick else cells


def _watcher(console: Console) -> Any:
    from zetamix.cli.progress import Watcher

    return Watcher(console, [], name=_run_name)


def _run_name(run: Any) -> str:
    """Which of all runs of all artifacts it is."""
    return f"{run.dataset.name} {run.recipe.model} {run.recipe.augmentation} {run.name}"


def _page(console: Console, results: Any, quick: bool) -> None:
    import torch

    from zetamix.provenance import machine_info
    from zetamix.report.paper.write import write_page

    path = results.folder / "index.html"
    write_page(results, path, machine_info(torch.device("cpu")), is_quick=quick)
    console.print(f"[dim]in {path}[/dim]", highlight=False, soft_wrap=True)


def _report(console: Console, results: Any, outcomes: dict[str, Any], quick: bool) -> None:
    for id, outcome in outcomes.items():
        console.print(
            f"[bold]{id}[/bold]: {outcome.ran} cells run, {outcome.done} were there, "
            f"{len(outcome.left)} still empty",
            highlight=False,
        )
        verdict = _draw(id, results, quick)
        more = len(verdict) - SENTENCES
        told = [f"{more} more sentences are in README.md."] if more > 0 else []
        for word in (*outcome.reasons, *verdict[:SENTENCES], *told):
            console.print(Padding(Text(word), (0, 0, 0, 2)))
        console.print(f"[dim]  in {results.folder / id}[/dim]", highlight=False, soft_wrap=True)


def _draw(id: str, results: Any, quick: bool) -> list[str]:
    """Write figures and tables, and return the verdict; records are kept where nothing can draw."""
    try:
        from zetamix.report.paper.artifacts import draw, look
        from zetamix.report.paper.write import write_artifact
    except ModuleNotFoundError as missing:
        if missing.name not in ("matplotlib", "scipy"):
            raise
        return [
            f"Drawing needs {missing.name}, which is not here. The records are kept: zetamix "
            "reproduce page draws them where it is."
        ]
    view = look(id, results, is_quick=quick)
    drawn = draw(view)
    write_artifact(view, drawn, results.folder / id)
    return list(drawn.verdict)


def _leave(console: Console, stop: Any, outcomes: dict[str, Any], session: Any) -> None:
    """Say why anything is left, in words and as the exit status."""
    left = sum(len(outcome.left) for outcome in outcomes.values())
    if not left:
        return
    if stop():
        why = "Stopped." if stop.terminated else "The time is up."
        saved = "Everything else is saved" if session.dropped else "Everything is saved"
        for cell in session.dropped:
            console.print(f"Begins anew next time: {cell.name}.", highlight=False)
        console.print(f"{why} {saved}; the same command goes on.")
        if session.under_way:
            runs = ", ".join(f"{_run_name(run)} {run.standing}" for run in session.under_way)
            console.print(f"Under way: {runs}.", highlight=False)
        # as a shell counts a signal: 143 for SIGTERM, 130 for Ctrl-C
        raise typer.Exit(0 if stop.signal is None else 128 + stop.signal)
    if not any(outcome.ran for outcome in outcomes.values()):
        raise typer.Exit(1)
