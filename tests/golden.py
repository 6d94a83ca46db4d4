"""Golden files: the text of a report, kept in the repository and compared word for word."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare `text` with `golden/NAME`; ZETAMIX_GOLDEN=write writes the file instead."""
    path = FOLDER / name
    if os.environ.get("ZETAMIX_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    assert text.rstrip("\n") == path.read_text(encoding="utf-8").rstrip("\n")
