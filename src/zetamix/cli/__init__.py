"""The command line: parse, call one library function, print."""

import signal
import sys


def main() -> None:
    """Entry point of `zetamix`."""
    # while modules are imported there is nothing to save: Ctrl-C ends the process, silently;
    # `report_errors` takes over. A process in the background may ignore it
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # names of files that are not UTF-8 are printed, too
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        from zetamix.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        sys.exit(
            f"The zetamix command needs {missing.name}. Install it with: pip install 'zetamix[cli]'"
        )
    app()
