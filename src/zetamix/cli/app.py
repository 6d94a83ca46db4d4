"""All commands of `zetamix`."""

import typer

from zetamix.cli.bench import bench
from zetamix.cli.compare import compare
from zetamix.cli.data import data
from zetamix.cli.inspect import inspect
from zetamix.cli.reproduce import reproduce
from zetamix.cli.train import train
from zetamix.cli.tune import tune

app = typer.Typer(
    help="ζ-mixup: mix many samples into each output, near the data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command()(compare)
app.command()(train)
app.command()(tune)
app.command()(inspect)
app.command()(reproduce)
app.command()(bench)
app.add_typer(data, name="data")


@app.callback()
def _commands() -> None:
    """Make typer expect a command's name even while there is only one."""
