"""Equations as MathML, written while the site is built: no script runs in the browser.

    ```math
    w_i = s_i^{-\\gamma} / C
    ```

is an equation on its own line, `$w_i$` one inside a sentence. GitHub shows both, too.
"""

import re
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

# neither prices (a digit behind the second sign) nor shell variables (a space before it)
INLINE = r"\$(?![\s$])([^$\n]*?[^\s$])\$(?!\d)"


def to_mathml(latex: str, *, display: str = "inline") -> str:
    """MathML of an equation; what cannot be converted is an error, never shown as it stands."""
    mathml = convert(latex.strip(), display=display)
    if left := re.search(r"<m[io]>(\\\w+)</m[io]>", mathml):
        raise ValueError(f"latex2mathml does not know {left[1]} in the equation {latex.strip()!r}.")
    return mathml


def format_fence(
    source: str, language: str, css_class: str, options: dict[str, Any], md: Markdown, **_: Any
) -> str:
    """A fenced block of the language `math`, for pymdownx.superfences."""
    return f'<div class="equation">{to_mathml(source, display="block")}</div>'


class InlineEquation(InlineProcessor):
    """`$…$` inside a sentence; code is read before it, and left alone."""

    def handleMatch(self, match: re.Match[str], data: str) -> tuple[Any, int, int]:
        html = to_mathml(match[1])
        place: Element | str = self.md.htmlStash.store(html)
        return place, match.start(), match.end()


class Equations(Extension):
    """`$…$` for Python-Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.register(InlineEquation(INLINE, md), "equation", 185)
