"""The command line: parse, call one library function, print."""

import sys


def main() -> None:
    """Entry point of `zetamix`."""
    # file names that are not UTF-8 are printed as well
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        from zetamix_lab.cli.stop import end_at_ctrl_c

        end_at_ctrl_c()
        from zetamix_lab.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        sys.exit(
            f"The zetamix command needs {missing.name}. Install it with: pip install 'zetamix[lab]'"
        )
    app()
