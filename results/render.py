"""Write the README's table of CIFAR-10 from the committed records.

    python results/render.py

A test fails when README and records disagree.
"""

import re
from pathlib import Path

from zetamix.experiments.reproduce import Results
from zetamix.report.paper.artifacts import look
from zetamix.report.paper.natural import draw_one

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
NAME = "cifar10"


def main() -> None:
    README.write_text(rendered(README.read_text()))


def rendered(text: str, folder: Path = HERE) -> str:
    """The README with the table as the records have it."""
    table = draw_one(look("natural", Results(folder)), NAME).markdown()
    block = f"<!-- {NAME} -->\n{table}\n<!-- /{NAME} -->"
    pattern = f"<!-- {NAME} -->.*?<!-- /{NAME} -->"
    text, count = re.subn(pattern, lambda _: block, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"README.md must hold <!-- {NAME} --> and <!-- /{NAME} --> once.")
    return text


if __name__ == "__main__":
    main()
