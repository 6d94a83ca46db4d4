"""All commands of `zetamix`."""

from typing import Any

import typer
from typer.core import TyperCommand

from zetamix.cli.bench import bench
from zetamix.cli.compare import compare
from zetamix.cli.data import data
from zetamix.cli.inspect import inspect
from zetamix.cli.reproduce import reproduce
from zetamix.cli.train import train
from zetamix.cli.tune import tune


class OnData(TyperCommand):
    """A command on a dataset, which everybody once names without its option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if ctx.args:
            word = ctx.args[0]
            raise typer.BadParameter(
                f"expected options only, got {word!r}. If that is your data: "
                f"zetamix {self.name} --data {word}",
                ctx=ctx,
            )
        return rest


app = typer.Typer(
    help="ζ-mixup: mix many samples into each output, near the data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
ON_DATA: dict[str, Any] = {"cls": OnData, "context_settings": {"allow_extra_args": True}}
app.command(**ON_DATA)(compare)
app.command(**ON_DATA)(train)
app.command(**ON_DATA)(tune)
app.command(**ON_DATA)(inspect)
app.command()(reproduce)
app.command()(bench)
app.add_typer(data, name="data")


@app.callback()
def _commands() -> None:
    """Make typer expect a command's name even while there is only one."""
