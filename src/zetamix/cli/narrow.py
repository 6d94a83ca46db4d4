"""Tables that stay readable on a narrow terminal, and in pipes and logs of 80 columns."""

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

# spaces between two columns of a table without a box
GAP = 2
STYLES = {"": "", "best": "bold", "second": "underline"}


def fold_name(name: str, width: int) -> str:
    """A method's name in lines of at most this width, broken between options, never in a number.

    A part that is wider by itself stays whole.

    >>> fold_name("zeta:gamma=2.0..4.0,sources=8", 22).split("\\n")
    ['zeta:gamma=2.0..4.0,', 'sources=8']
    >>> fold_name("zeta:gamma=2.0..4.0,sources=8", 17).split("\\n")
    ['zeta:', 'gamma=2.0..4.0,', 'sources=8']
    """
    lines = [""]
    for part in re.findall(r"[^,:]*[,:]|[^,:]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def room_for_names(columns: Sequence[Sequence[str]], width: int) -> int:
    """What columns of these texts leave of a terminal's width for a first one."""
    taken = [max(len(line) for text in texts for line in text.split("\n")) for texts in columns]
    return width - sum(GAP + each for each in taken)


def blocks(table: Any, width: int, groups: Sequence[Sequence[int]]) -> list[Table]:
    """A table of a report as one that fits the width, or as several below each other.

    Every block begins with the first column. groups: columns that stay together where they can.
    """
    texts = [[row[place].text() for row in table.cells] for place in range(len(table.heads))]
    heads = [_head(head.name, column) for head, column in zip(table.heads, texts, strict=True)]
    columns = [[head, *column] for head, column in zip(heads, texts, strict=True)]
    # names may be folded between options for the sake of a column, but no further
    least = max(len(part) for name in columns[0] for part in re.split(r"(?<=,)", name))

    def fits(places: Sequence[int]) -> bool:
        return room_for_names([columns[place] for place in places], width) >= least

    found: list[list[int]] = [[]]
    for group in groups:
        for places in [list(group)] if fits(group) else [[place] for place in group]:
            if found[-1] and not fits([*found[-1], *places]):
                found.append([])
            found[-1] += places
    return [_block(table, heads, places, width) for places in found]


def _head(name: str, column: Sequence[str]) -> str:
    """A heading in lines no wider than what stands below it, where its words allow that."""
    width = max([1, *map(len, column)])
    lines = textwrap.wrap(name, width, break_long_words=False, break_on_hyphens=False)
    # one line where breaking it would make the column no narrower
    return name if max(map(len, lines), default=0) >= len(name) else "\n".join(lines)


def _block(table: Any, heads: Sequence[str], places: Sequence[int], width: int) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    columns = [[heads[place], *(row[place].text() for row in table.cells)] for place in places]
    room = room_for_names(columns, width)
    for place in (0, *places):
        left = place == 0 or table.is_text(place)
        # where not even this fits, no number is cut off
        shown.add_column(heads[place], justify="left" if left else "right", overflow="fold")
    for row in table.cells:
        cells = [Text(row[place].text(), style=STYLES[row[place].mark]) for place in places]
        shown.add_row(Text(fold_name(row[0].text(), room)), *cells)
    return shown
