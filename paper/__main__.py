"""`python -m paper`: the figures and tables of the paper; `python -m paper data`: its datasets."""

import sys

import typer

from paper.datasets.cli import data
from paper.run import run

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
app.command(name="paper")(run)

if __name__ == "__main__":
    if sys.argv[1:2] == ["data"]:
        data(sys.argv[2:], prog_name="python -m paper data")
    else:
        app()
