"""Render the CIFAR-10 table of the README from the committed records.

    python results/render.py

A test fails when the README and the records disagree.
"""

import re
from pathlib import Path

from zetamix.experiments.reproduce import make_view
from zetamix.report.paper.tables import readme_table
from zetamix.results.record_store import RecordStore

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
NAME = "cifar10"


def main() -> None:
    README.write_text(render(README.read_text()))


def render(text: str, folder: Path = HERE) -> str:
    """The text of the README with the table of the records."""
    table = readme_table(make_view("natural", RecordStore(folder)), NAME).markdown()
    block = f"<!-- {NAME} -->\n{table}\n<!-- /{NAME} -->"
    pattern = f"<!-- {NAME} -->.*?<!-- /{NAME} -->"
    text, count = re.subn(pattern, lambda _: block, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(
            f"README.md must contain <!-- {NAME} --> and <!-- /{NAME} --> exactly once."
        )
    return text


if __name__ == "__main__":
    main()
