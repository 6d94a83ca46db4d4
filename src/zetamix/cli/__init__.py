"""The command line: parse, call one library function, print."""

import sys


def main() -> None:
    """Entry point of `zetamix`."""
    try:
        from zetamix.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        sys.exit(
            f"The zetamix command needs {missing.name}. Install it with: pip install 'zetamix[cli]'"
        )
    app()
