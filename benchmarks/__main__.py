"""`python -m benchmarks`: the time of mixing a batch."""

import typer

from benchmarks.cli import bench

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
app.command(name="benchmarks")(bench)

if __name__ == "__main__":
    app()
