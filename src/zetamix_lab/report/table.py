"""Tables as Markdown, LaTeX and CSV; `page.html.j2` writes them as HTML."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from zetamix_lab.statistics import Summary

Mark: TypeAlias = Literal["", "best", "second"]
Plain: TypeAlias = str | int | float | None

# smaller numbers are zero with six decimals
TINY = 5e-7
MISSING = "–"
MINUS = "−"
LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": r"$-$",
    "–": "--",
    "γ": r"$\gamma$",
    "ζ": r"$\zeta$",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
    "Δ": r"$\Delta$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "→": r"$\to$",
    "²": r"$^2$",
}


@dataclass(frozen=True)
class Cell:
    """A value with its error, count, mark and note.

    >>> Cell(24.632, error=0.1234).text(), Cell(0.97134, digits=3).text(), Cell(None).text()
    ('24.63 ± 0.12', '0.971', '–')
    """

    value: Plain
    error: float | None = None
    """Printed after ±; with two significant digits if `digits` is None."""
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
        """The value and its error."""
        value, error = self.value, self.error
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return MISSING
        if isinstance(value, str):
            return value
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
        shown = f"{value:,.{digits}f}"
        # zero has no sign
        if not shown.strip("-0."):
            shown = shown.lstrip("-")
        elif self.signed and value > 0:
            shown = f"+{shown}"
        shown = shown.replace("-", MINUS)
        return (f"{shown} ± {error:,.{digits}f}" if has_error else shown) + self.suffix


MARKED = "best and second best marked where every method has the same seeds"


def rank_marks(summaries: Mapping[str, Summary | None], sign: int) -> Mapping[str, Mark]:
    """Marks of the best and the second best mean; ties share a rank.

    There are none unless all have the same seeds: a mean over fewer seeds may be best by chance.

    sign: 1 if higher is better, else -1.

    >>> means = {"a": 1.0, "b": 3.0, "c": 2.0}
    >>> rank_marks({name: Summary(mean, None, {0: mean}) for name, mean in means.items()}, 1)
    {'b': 'best', 'c': 'second'}
    """
    if not have_same_seeds(summaries.values()):
        return {}
    means = {name: sign * summary.mean for name, summary in summaries.items() if summary}
    ordered = sorted(set(means.values()), reverse=True)
    ranks: tuple[Mark, ...] = ("best", "second")
    marks = dict(zip(ordered, ranks, strict=False))
    return {name: marks[mean] for name, mean in means.items() if mean in marks}


def have_same_seeds(summaries: Iterable[Summary | None]) -> bool:
    """Whether there is a mean of every method, all over the same seeds."""
    seeds = {None if summary is None else frozenset(summary.values) for summary in summaries}
    return None not in seeds and len(seeds) == 1


def _decimals(number: float | None, significant: int) -> int:
    """The decimals that show this many significant digits of a number; at most six."""
    if not number:
        return 0
    return min(6, max(0, significant - 1 - math.floor(math.log10(abs(number)))))


@dataclass(frozen=True)
class Column:
    """A heading with a tooltip (HTML only)."""

    name: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row is its heading.

    >>> table = Table(["method", "error %"], [["none", Cell(5.4821, error=0.05)], ["zeta", 4.42]])
    >>> print(table.markdown())
    | method | error % |
    |---|---:|
    | none | 5.482 ± 0.050 |
    | zeta | 4.420 |
    """

    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell | Plain]]
    caption: str = ""
    notes: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Expected {len(self.columns)} cells in every row, one for each column, got "
                    f"{len(row)} in the row {_cell(row[0]).text() if row else ''!r}."
                )

    @property
    def heads(self) -> list[Column]:
        return [Column(head) if isinstance(head, str) else head for head in self.columns]

    @property
    def cells(self) -> list[list[Cell]]:
        return [[_cell(value) for value in row] for row in self.rows]

    def is_text(self, column: int) -> bool:
        """Whether a column holds text, which is aligned left, and not numbers."""
        values = [row[column].value for row in self.cells if row[column].value is not None]
        return bool(values) and all(isinstance(value, str) for value in values)

    def markdown(self) -> str:
        columns = range(len(self.columns))
        lines = [
            "| " + " | ".join(_markdown(head.name) for head in self.heads) + " |",
            "|" + "|".join("---" if self.is_text(k) else "---:" for k in columns) + "|",
        ]
        wrap = {"": "{}", "best": "**{}**", "second": "*{}*"}
        for row in self.cells:
            texts = [wrap[cell.mark].format(_markdown(cell.text())) for cell in row]
            links = [f"[{t}](#{c.link})" if c.link else t for t, c in zip(texts, row, strict=True)]
            lines.append("| " + " | ".join(links) + " |")
        return "\n".join(lines)

    def latex(self) -> str:
        """A `tabular` with booktabs' rules."""
        columns = range(len(self.columns))
        wrap = {"": "{}", "best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"}
        lines = [
            r"\begin{tabular}{" + "".join("l" if self.is_text(k) else "r" for k in columns) + "}",
            r"\toprule",
            " & ".join(_latex(head.name) for head in self.heads) + r" \\",
            r"\midrule",
            *(
                " & ".join(wrap[cell.mark].format(_latex(cell.text())) for cell in row) + r" \\"
                for row in self.cells
            ),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(lines)

    def csv(self) -> str:
        """Numbers in full precision; errors and n, if any, in separate columns."""
        parts = [self._parts(k) for k in range(len(self.columns))]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        heads = []
        for head, extra in zip(self.heads, parts, strict=True):
            heads += [head.name, *(f"{head.name} {part}" for part in extra)]
        writer.writerow(heads)
        for row in self.cells:
            line: list[Plain] = []
            for cell, extra in zip(row, parts, strict=True):
                line += [cell.value, *(getattr(cell, part) for part in extra)]
            # NaN is the one value that differs from itself
            writer.writerow("" if value is None or value != value else value for value in line)
        return file.getvalue()

    def _parts(self, column: int) -> list[str]:
        cells = [row[column] for row in self.cells]
        return [part for part in ("error", "n") if any(getattr(c, part) is not None for c in cells)]


def _cell(value: Cell | Plain) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("\n", " ")


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
