"""The commands of `zetamix`: compare and check."""

from typing import Annotated

import typer

from zetamix import __version__
from zetamix_lab.cli.check import check
from zetamix_lab.cli.compare import compare

HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    help="Mixing augmentations for PyTorch: does mixing help on your data, and is it fit to train "
    "on?",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings=HELP,
)
app.command(context_settings={**HELP, "allow_extra_args": True})(compare)
app.command(context_settings=HELP)(check)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"zetamix {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options of `zetamix` itself."""
