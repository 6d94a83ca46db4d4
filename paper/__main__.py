"""`python -m paper`: the figures and tables of the paper."""

import typer

from paper.cli import reproduce

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
app.command(name="paper")(reproduce)

if __name__ == "__main__":
    app()
