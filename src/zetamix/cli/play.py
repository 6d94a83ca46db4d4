"""`zetamix play`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from zetamix.cli import options
from zetamix.cli.errors import report_errors


def parse_file(text: str) -> Path:
    """A file to write; the empty text is an unset variable of a shell."""
    if not text.strip():
        raise typer.BadParameter("expected a file, got an empty text")
    if Path(text).is_dir():
        raise typer.BadParameter(f"expected a file, got the folder {text}")
    return Path(text)


def play(
    data: options.Data = "digits",
    skip_broken: options.SkipBroken = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=parse_file,
            metavar="FILE",
            help="The page to write. Default: out/play-NAME.html.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Seed of the choice of images.")
    ] = 0,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
    data_dir: options.DataDir = None,
) -> None:
    """Mix a batch in the browser: move γ, and see images, weights and labels change.

    Writes one HTML file that holds up to 48 of your images, downscaled to 64 pixels, and needs no
    network. Its outputs are those of zetamix.ZetaMix on a CPU, by the seed that the page shows.
    """
    from zetamix import data as datasets
    from zetamix.report.playground import write_playground

    console = Console()
    with report_errors():
        options.prepare_without_broken(skip_broken, data, data_dir)
        dataset = datasets.load(data, data_dir=data_dir)
        page = out or Path("out") / f"play-{dataset.name}.html"
        options.check_writable(page.parent, "--out")
        write_playground(dataset, page, seed=seed)
    console.print(f"Page written to {page}", markup=False, highlight=False, soft_wrap=True)
    if open_page and not _open(page):
        console.print("Open it in a browser.", highlight=False)


def _open(page: Path) -> bool:
    """Whether a browser took the page."""
    import webbrowser

    # without a display a browser of text would take over the terminal
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform.startswith("linux") and not any(map(os.environ.get, displays)):
        return False
    return webbrowser.open(page.resolve().as_uri())
