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
    """A file to write; raises for an empty string, such as an unset shell variable."""
    if not text.strip():
        raise typer.BadParameter("expected a file, got an empty string")
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
            help="Output file. Default: out/play-NAME.html.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Seed that selects the images.")
    ] = 0,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
    data_dir: options.DataDir = None,
) -> None:
    """Mix a batch in the browser, and see how γ changes images, weights and labels.

    Writes one HTML file with up to 48 of your images, downscaled to 64 pixels. It works offline.
    Its outputs are those of zetamix.ZetaMix on a CPU with the seed shown on the page.
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
    """Open the page in a browser; return whether that worked."""
    import webbrowser

    # without a display, a text browser would take over the terminal
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform.startswith("linux") and not any(map(os.environ.get, displays)):
        return False
    return webbrowser.open(page.resolve().as_uri())
