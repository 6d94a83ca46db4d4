"""The docstrings of zetamix as Markdown, for mkdocstrings.

They are plain text for `help()`: a sentence, paragraphs, a list of arguments (`name: meaning`), and
doctests. The list becomes a list, doctests become code, and public names in backticks become links.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import griffe

ARGUMENT = re.compile(r"^(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): (.+)$")
NAME = re.compile(r"(?<![\[`])`((?:zetamix\.)?[A-Za-z_][\w.]*)`(?!`)")
# where the reference describes each public name
HOMES = {
    "zetamix.transforms": (
        "ZetaMix", "ZetaMixup", "Mixup", "CutMix", "MixupOrCutMix", "LabelSmoothing",
    ),
    "zetamix.plan": ("MixPlan", "zeta_plan", "mixup_plan"),
    "zetamix.mix": ("apply_plan", "zeta_mixup", "mixup"),
    "zetamix.gamma": ("GAMMA_MIN", "describe_gamma", "weigh"),
    "zetamix.losses": ("soft_cross_entropy", "SoftCrossEntropy"),
    "zetamix.rules": ("Blend", "OneHot", "Average", "FromAnchor"),
}  # fmt: skip
LINKS = {name: f"{home}.{name}" for home, names in HOMES.items() for name in names}


class ReadableDocstrings(griffe.Extension):
    """Rewrites every docstring before it is rendered."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **_: Any) -> None:
        if obj.docstring is not None:
            # there `Mixup` is the class of the module, and `mixup` the name of a method
            links = {} if obj.path.startswith("zetamix.integrations") else LINKS
            links = {name: target for name, target in links.items() if name != obj.name}
            obj.docstring.value = to_markdown(obj.docstring.value, links)


def to_markdown(text: str, links: Mapping[str, str] = MappingProxyType({})) -> str:
    """A docstring as Markdown.

    links: the names to link, with the objects that they lead to.
    """
    blocks = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(_convert(block, links) for block in blocks)


def _convert(block: str, links: Mapping[str, str]) -> str:
    lines = block.splitlines()
    if lines[0].startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    # doctests may follow their sentence at once
    example = next((k for k, line in enumerate(lines) if line.startswith(">>>")), None)
    if example is not None:
        parts = "\n".join(lines[:example]), "\n".join(lines[example:])
        return "\n\n".join(_convert(part, links) for part in parts)
    if ARGUMENT.match(lines[0]):
        return _link("\n".join(_list_arguments(lines)), links)
    return _link(block, links)


def _list_arguments(lines: list[str]) -> list[str]:
    entries: list[str] = []
    for line in lines:
        if match := ARGUMENT.match(line):
            names = ", ".join(f"`{name}`" for name in match[1].split(", "))
            entries.append(f"- {names}: {match[2]}")
        else:
            entries[-1] += f" {line.strip()}"
    return entries


def _link(text: str, links: Mapping[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        name = match[1].rpartition(".")[2]
        return f"[{match[0]}][{links[name]}]" if name in links else match[0]

    return NAME.sub(replace, text)
