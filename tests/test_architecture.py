"""The house as a whole: its size, its imports, its public names."""

import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import typing_cases

import zetamix

ROOT = Path(__file__).parent.parent
SOURCE = Path(zetamix.__file__).parent
PUBLIC_NAMES = Path(__file__).with_name("public_names.txt").read_text().split()


SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["zetamix"]


@pytest.mark.parametrize("part", SETTINGS["budget"])
def test_the_lines_of_a_part_keep_to_its_budget(part):
    budget, above = SETTINGS["budget"][part], SETTINGS["above-budget"].get(part)
    lines = sum(len(file.read_text().splitlines()) for file in (ROOT / part).rglob("*.py"))
    advice = f"{part} has {lines:,} lines. Make room: no number in pyproject.toml is raised."
    assert lines <= (above or budget), advice
    assert above is None or lines > budget, f"{part} is within its budget: remove above-budget."


# run in a fresh interpreter; the report goes to a file, so that standard output stays the library's
PROGRAM = """
import json, random, sys
import torch
import numpy

def state():
    return [repr(random.getstate()), repr(numpy.random.get_state()), torch.get_rng_state().tolist()]

settings = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
states, modules = state(), set(sys.modules)
import zetamix
report = {
    "new": sorted({name.partition(".")[0] for name in set(sys.modules) - modules}),
    "same_state": state() == states,
    "same_settings": settings
    == (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()),
    "cuda": torch.cuda.is_initialized(),
}
with open(sys.argv[1], "w") as file:
    json.dump(report, file)
"""


def test_import_needs_torch_alone_and_has_no_side_effects(tmp_path):
    report = tmp_path / "report.json"
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(report)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    found = json.loads(report.read_text())
    assert set(found.pop("new")) - {"torch"} - set(sys.stdlib_module_names) == {"zetamix"}
    assert found == {"same_state": True, "same_settings": True, "cuda": False}
    assert list(tmp_path.iterdir()) == [report]


def test_public_names_are_the_frozen_ones_for_type_checkers_too_and_have_docstrings():
    assert sorted(zetamix.__all__) == PUBLIC_NAMES
    assert set(PUBLIC_NAMES) <= set(dir(zetamix))
    source = Path(zetamix.__file__).read_text()
    assert (
        sorted(re.findall(r"^    from zetamix.* as (\w+)$", source, re.MULTILINE)) == PUBLIC_NAMES
    )
    # a name that shadowed a submodule would hide it
    modules = {module.name for module in pkgutil.iter_modules(zetamix.__path__)}
    assert modules & set(PUBLIC_NAMES) == {"rules"}
    for name in PUBLIC_NAMES:
        value = getattr(zetamix, name)
        assert not callable(value) or value.__doc__
    with pytest.raises(AttributeError, match="has no attribute 'zeta_mixdown'"):
        zetamix.zeta_mixdown  # noqa: B018


BATCHES = {
    "pair": (lambda mix, images, labels: mix(images, labels), 40, 7),
    "dict": (lambda mix, images, labels: mix({"image": images, "label": labels}), 53, 8),
}


@pytest.mark.parametrize(("call", "most", "files"), BATCHES.values(), ids=BATCHES.keys())
def test_a_call_is_short_to_walk(call, most, files):
    """Files and Python calls of one warm CPU call; torchvision's MixUp makes 24 in 4 files."""
    mix = zetamix.ZetaMix(num_classes=10)
    images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    call(mix, images, labels)
    calls = []

    def count(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            calls.append(frame.f_code.co_filename)

    sys.setprofile(count)
    try:
        call(mix, images, labels)
    finally:
        sys.setprofile(None)
    assert 0 < len(calls) <= most
    assert len(set(calls)) <= files


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").is_file()
    typing_cases.tensors_stay_tensors()
