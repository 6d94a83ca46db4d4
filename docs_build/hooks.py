"""Events of MkDocs: equations, the command line and the records become pages while it builds."""

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

# the tools beside this file, and `paper`
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import command_line
import equations
import record_blocks

COMMANDS = "<!-- commands -->"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.markdown_extensions.append(equations.Equations())
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fence = {"name": "math", "class": "equation", "format": equations.format_fence}
    fences["custom_fences"] = [fence]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, content, _ in record_blocks.figure_files().values():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, command_line.to_markdown())
    return record_blocks.fill_places(markdown, "../" * page.file.src_uri.count("/"))
