"""The command line: parse, call one library function, print."""

import signal
import sys


def main() -> None:
    """Entry point of `zetamix`."""
    if sys.version_info < (3, 11):  # noqa: UP036 (the library supports 3.10)
        version = sys.version.split()[0]
        sys.exit(f"The zetamix command needs Python 3.11 or newer, got {version}.")
    # during imports Ctrl-C ends the process at once: there is nothing to save
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # file names that are not UTF-8 are printed as well
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        from zetamix_lab.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        sys.exit(
            f"The zetamix command needs {missing.name}. Install it with: pip install 'zetamix[lab]'"
        )
    app()
