"""One HTML page that contains its text, tables and figures, and works offline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined

from zetamix_lab.provenance import machine_summary
from zetamix_lab.report.figure import Picture
from zetamix_lab.report.table import Table


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, tables and figures below it; within another one, folded."""

    title: str
    blocks: Sequence["Block"]
    anchor: str = ""
    """The id that links refer to."""


Block: TypeAlias = str | Table | Picture | Section


def render_page(
    title: str,
    sections: Sequence[Section],
    *,
    machine: Mapping[str, str] | None = None,
    lead: Mapping[str, str] | None = None,
) -> str:
    """The page as HTML with everything inlined.

    machine: where the results were measured, from `zetamix_lab.provenance.machine_info`; None if
        the sections include it.
    lead: what the report says first, under "Result", "Next" and "Caution".

    >>> page = render_page("Title", [Section("Part", ["1 < 2"])])
    >>> "<p>1 &lt; 2</p>" in page, "http" in page.replace("http-equiv", "")
    (True, False)
    """
    environment = Environment(
        loader=PackageLoader("zetamix_lab", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.j2").render(
        page_title=title,
        sections=sections,
        machine=machine,
        machine_summary="" if machine is None else machine_summary(dict(machine)),
        lead=lead or {},
    )
