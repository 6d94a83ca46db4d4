"""What a user reads runs: every Python block of the README, in order, as one program."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"^```python\b[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


def blocks_of(path):
    """(first line, code) of every Python block, padded so that an error names the README's line."""
    text = path.read_text(encoding="utf-8")
    blocks = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(1))
        blocks.append((line + 1, "\n" * line + match.group(1)))
    return blocks


def test_readme_blocks_run(tmp_path, monkeypatch):
    blocks = blocks_of(README)
    assert blocks, "README.md has no ```python block"
    # no fence may be missed, however it is written
    assert len(blocks) == README.read_text(encoding="utf-8").lower().count("```py")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "readme"}
    for _, code in blocks:
        exec(compile(code, str(README), "exec"), namespace)


def test_a_block_that_fails_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nvalue = 1\n```\n\n```python\nassert value == 2\n```\n")
    (first, _), (second, code) = blocks_of(page)
    assert (first, second) == (4, 8)
    with pytest.raises(AssertionError) as caught:
        exec(compile(code, "page.md", "exec"), {"value": 1})
    assert caught.traceback[-1].lineno + 1 == 8


def load(script):
    spec = importlib.util.spec_from_file_location("render", ROOT / script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("script", "shown", "changed"),
    [
        ("benchmarks/render.py", "| 128 × 3 × 32² |", "| 129 × 3 × 32² |"),
        ("results/render.py", "| no mixing |", "| no maxing |"),
    ],
)
def test_tables_show_what_was_measured(script, shown, changed):
    render = load(script).render
    text = README.read_text()
    assert render(text) == text
    # a changed number would be noticed
    assert shown in text
    assert render(text.replace(shown, changed)) == text
