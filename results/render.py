"""Render the tables of the README from the committed records.

    python results/render.py

A test fails when the README and the records disagree.
"""

import re
from pathlib import Path

from zetamix.experiments.reproduce import make_view
from zetamix.report.paper.tables import readme_table
from zetamix.report.paper.zetamix_proof import readme_section
from zetamix.results.record_store import RecordStore

HERE = Path(__file__).parent
README = HERE.parent / "README.md"


def main() -> None:
    README.write_text(render(README.read_text()))


def render(text: str, folder: Path = HERE) -> str:
    """The text of the README with the tables of the records."""
    store = RecordStore(folder)
    blocks = {
        "zetamix": readme_section(make_view("zetamix", store)),
        "cifar10": readme_table(make_view("natural", store), "cifar10").markdown(),
    }
    for name, content in blocks.items():
        block = f"<!-- {name} -->\n{content}\n<!-- /{name} -->"
        pattern = f"<!-- {name} -->.*?<!-- /{name} -->"
        text, count = re.subn(pattern, lambda _, block=block: block, text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(
                f"README.md must contain <!-- {name} --> and <!-- /{name} --> exactly once."
            )
    return text


if __name__ == "__main__":
    main()
