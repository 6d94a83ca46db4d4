"""Tables as Markdown, LaTeX and CSV; `page.html.j2` writes them as HTML, `cli` to the terminal."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import pandas as pd

from zetamix_lab.text import printable

Mark: TypeAlias = Literal["", "best"]
Plain: TypeAlias = str | int | float | None

# smaller numbers are zero with six decimals
TINY = 5e-7
MISSING = "–"
MINUS = "−"
# what Markdown takes for markup, entities and mathematics
MARKUP = re.compile(r"[\\`*_\[\]<|~$]|&(?=#?\w+;)")
MATHS = {"±": "pm", "×": "times", "≥": "geq", "≤": "leq", "→": "to"}
MATHS |= {"γ": "gamma", "ζ": "zeta", "α": "alpha", "λ": "lambda", "Δ": "Delta"}
LATEX = str.maketrans(
    {symbol: f"\\{symbol}" for symbol in "&%$#_{}"}
    | {symbol: f"$\\{name}$" for symbol, name in MATHS.items()}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "|": "$|$", "−": "$-$", "–": "--", "²": "$^2$"}
)


@dataclass(frozen=True)
class Cell:
    """A value with its error, count, mark and note.

    >>> Cell(24.632, error=0.1234).text(), Cell(0.97134, digits=3).text(), Cell(None).text()
    ('24.63 ± 0.12', '0.971', '–')
    """

    value: Plain
    error: float | None = None
    """Printed after ±, unless it is NaN; with two significant digits if `digits` is None."""
    n: int | None = None
    """Number of values, if it is printed in the cell."""
    digits: int | None = None
    """Decimals; None for four significant digits of a number without an error."""
    mark: Mark = ""
    note: str = ""
    """Tooltip of the cell (HTML only)."""
    link: str = ""
    """Id of the section that the cell links to (HTML and Markdown)."""
    signed: bool = False
    """Whether a positive number has a sign, as a difference should."""
    suffix: str = ""
    """Printed after the number, such as a mark of significance."""

    def text(self) -> str:
        return self.number() if self.n is None else f"{self.number()} (n = {self.n:,})"

    def number(self) -> str:
        """The value and its error. Control characters of a text are escaped."""
        value, error = self.value, self.error
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return MISSING
        if isinstance(value, str):
            return printable(value)
        if isinstance(value, int):
            return f"{value:,}".replace("-", MINUS)
        if math.isinf(value):
            return "∞" if value > 0 else f"{MINUS}∞"
        has_error = error is not None and math.isfinite(error)
        digits = self.digits
        if digits is None:
            digits = _decimals(value, 4)
            if has_error and error:
                # at most four significant digits
                digits = min(_decimals(error, 2), digits if abs(value) > TINY else 3)
            elif abs(value) < TINY:
                digits = 3 if value else 0
        shown = f"{value:+z,.{digits}f}".replace("-", MINUS)
        # zero has no sign
        if not self.signed or not shown.strip("+0."):
            shown = shown.removeprefix("+")
        return (f"{shown} ± {error:,.{digits}f}" if has_error else shown) + self.suffix


def _decimals(number: float | None, significant: int) -> int:
    """The decimals that show this many significant digits of a number; at most six."""
    if not number:
        return 0
    return min(6, max(0, significant - 1 - math.floor(math.log10(abs(number)))))


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row is its heading.

    >>> frame = pd.DataFrame({"method": ["none"], "error %": [Cell(5.482, error=0.05)]})
    >>> print(Table.of(frame).markdown())
    | method | error % |
    |---|---:|
    | none | 5.482 ± 0.050 |
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | Plain]]
    caption: str = ""
    notes: Sequence[str] = ()
    tips: Mapping[str, str] = field(default_factory=dict)
    """Tooltips of columns (HTML only)."""

    @classmethod
    def of(cls, frame: pd.DataFrame, *more: Any) -> "Table":
        """The table of a data frame of cells, texts and numbers. more: caption, notes, tips."""
        # as objects: a column of numbers gives NumPy's own
        return cls([*frame], frame.astype(object).to_numpy().tolist(), *more)

    @cached_property
    def cells(self) -> list[list[Cell]]:
        return [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in self.rows]

    @cached_property
    def text_columns(self) -> list[bool]:
        """Whether a column holds text, which is aligned left, and not numbers."""
        kinds = [
            {type(row[k].value) for row in self.cells if row[k].value is not None}
            for k in range(len(self.columns))
        ]
        return [own == {str} for own in kinds]

    def markdown(self) -> str:
        rule = "|".join("---" if is_text else "---:" for is_text in self.text_columns)
        head, *rows = self._lines(markdown_text, {"best": "**{}**"})
        return "\n".join(
            [f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
        )

    def latex(self) -> str:
        """A `tabular` with booktabs' rules."""
        marks = {"best": r"\textbf{{{}}}"}
        head, *rows = (" & ".join(line) + r" \\" for line in self._lines(latex_text, marks))
        alignment = "".join("l" if is_text else "r" for is_text in self.text_columns)
        begin, end = rf"\begin{{tabular}}{{{alignment}}}", r"\end{tabular}"
        return "\n".join([begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", end])

    def _lines(self, escape: Callable[[str], str], marks: Mapping[str, str]) -> list[list[str]]:
        def show(cell: Cell) -> str:
            text = marks.get(cell.mark, "{}").format(escape(cell.text()))
            return f"[{text}](#{cell.link})" if cell.link and escape is markdown_text else text

        names = [escape(printable(name)) for name in self.columns]
        return [names, *(list(map(show, row)) for row in self.cells)]

    def csv(self) -> str:
        """Numbers in full precision; errors and n, if any, in columns of their own."""
        names, columns = list[str](), list[list[Plain]]()
        for k, name in enumerate(self.columns):
            for part in ("value", "error", "n"):
                values = [getattr(row[k], part) for row in self.cells]
                if part == "value" or any(value is not None for value in values):
                    names.append(f"{name} {part}".removesuffix(" value"))
                    columns.append(values)
        frame = pd.DataFrame(dict(enumerate(columns)), dtype=object)
        text: str = frame.to_csv(index=False, header=names)
        return text


def markdown_text(text: str) -> str:
    r"""A text in which Markdown finds no markup.

    >>> print(markdown_text("a_b <i>$x$ & &lt;"))
    a\_b \<i>\$x\$ & \&lt;
    """
    return MARKUP.sub(r"\\\g<0>", text).replace("\n", " ")


def latex_text(text: str) -> str:
    return text.replace("\n", " ").translate(LATEX)
