"""The command line: parse, call one library function, print."""

import sys


def main() -> None:
    """Entry point of `zetamix`."""
    if sys.version_info < (3, 11):  # noqa: UP036 (the library supports 3.10)
        version = sys.version.split()[0]
        sys.exit(f"The zetamix command needs Python 3.11 or newer, got {version}.")
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
