"""`python -m paper`: the figures and tables of the paper; `python -m paper data`: its datasets."""

import sys

import typer

from paper.datasets.cli import data
from paper.run import run

HELP = {"help_option_names": ["-h", "--help"]}
app, data_app = typer.Typer(context_settings=HELP), typer.Typer(context_settings=HELP)
app.command(name="paper")(run)
data_app.command(name="data")(data)

if __name__ == "__main__":
    if sys.argv[1:2] == ["data"]:
        data_app(sys.argv[2:], prog_name="python -m paper data")
    else:
        app()
