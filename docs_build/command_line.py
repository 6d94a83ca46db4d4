"""The reference of the command line, from the commands themselves."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from zetamix_lab.cli.app import app

COMPLETION = ("install_completion", "show_completion")


def to_markdown() -> str:
    """Every command with its help, its arguments and its options."""
    root: Any = typer.main.get_command(app)
    return "\n\n".join(part for name, command in _walk(root) for part in _describe(name, command))


def _walk(command: Any, name: str = "zetamix") -> Iterator[tuple[str, Any]]:
    yield name, command
    for child, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, f"{name} {child}")


def _describe(name: str, command: Any) -> list[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    help_text = _unwrap(inspect.cleandoc(command.help or ""))
    parts = [f"## {name}", help_text, f"```text\n{name} {usage}\n```"]
    if commands := getattr(command, "commands", {}):
        rows = [
            f"| [`{name} {child}`](#{_anchor(f'{name} {child}')}) "
            f"| {_cell(_unwrap(inspect.cleandoc(inner.help or '')).splitlines()[0])} |"
            for child, inner in commands.items()
        ]
        parts.append("\n".join(["| command | |", "|---|---|", *rows]))
    records = [
        parameter.get_help_record(context)
        for parameter in command.params
        if parameter.name not in COMPLETION
    ]
    rows = [f"| `{names}` | {_cell(text)} |" for names, text in filter(None, records)]
    if rows:
        parts.append("\n".join(["| option | |", "|---|---|", *rows]))
    return parts


def _anchor(heading: str) -> str:
    return heading.replace(" ", "-")


def _unwrap(text: str) -> str:
    """Paragraphs on one line each, without the marks that typer reads."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").replace("\f", ""))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _cell(text: str) -> str:
    """Text of a table: angle brackets are no tags, and words such as ~/.cache no marks."""
    for sign in ("\\", "|", "*", "_", "~", "[", "]"):
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.replace("<", "&lt;").split())
