"""The distribution: what `pip install zetamix` would bring, and that its core needs torch alone."""

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def run(*arguments, **options):
    """The output of a Python program, which must succeed."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(wheel, sdist) of the working tree."""
    folder = tmp_path_factory.mktemp("dist")
    # without isolation: the build backend is a pinned development requirement
    run("-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def test_an_index_would_take_both_files(built):
    run("-m", "twine", "check", "--strict", *built)


def test_both_files_hold_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built[0]) as wheel, tarfile.open(built[1]) as sdist:
        modules = {name for name in wheel.namelist() if ".dist-info/" not in name}
        files = {name.partition("/")[2] for name in sdist.getnames()}
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    in_tree = {name for name in listed.split() if (ROOT / name).exists()}
    assert {f"src/{name}" for name in modules} == in_tree
    assert {"zetamix/py.typed", "zetamix_lab/report/page.html.j2"} <= modules
    assert in_tree | {"pyproject.toml", "README.md", "LICENSE"} <= files
    assert not any(name.startswith(("tests", ".ci", "results")) for name in files)


def test_the_metadata_says_what_is_needed(built):
    with zipfile.ZipFile(built[0]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
        metadata = Parser().parsestr(wheel.read(name).decode())
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist")]
    assert [need.name for need in needed if need.marker is None] == ["torch"]
    pythons = [c for c in metadata.get_all("Classifier") if re.search(r":: 3\.\d+$", c)]
    assert len(pythons) == 4
    assert metadata["License-Expression"] == "MIT"


def closure(name, found=None):
    """A distribution and everything that it requires here, without extras."""
    found = {} if found is None else found
    if name not in found:
        found[name] = distribution(name)
        for text in found[name].requires or []:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                closure(need.name, found)
    return found


@pytest.fixture(scope="module")
def bare(built, tmp_path_factory):
    """A folder with torch, what torch requires, and the wheel: all that a bare install has."""
    folder = tmp_path_factory.mktemp("bare")
    for part in closure("torch").values():
        for top in {file.parts[0] for file in part.files if file.parts[0] != ".."}:
            source = Path(str(part.locate_file(top)))
            if source.exists() and not (folder / top).exists():
                (folder / top).symlink_to(source)
    with zipfile.ZipFile(built[0]) as wheel:
        wheel.extractall(folder)
    return folder


def run_bare(bare, program):
    """Run a program that sees the standard library and the bare folder."""
    start = f"import sys; sys.path.insert(0, {str(bare)!r})\n"
    return run("-I", "-S", "-c", start + program, cwd=bare)


# besides the loop of the README: everything is mixed as in plain torch, and without NumPy
MIX = """
import zetamix
from zetamix.kernels import dispatch
samples, labels = torch.randn(8, 3, 9, 9), torch.arange(8)
for kind in ("ZetaMix", "ZetaMixup", "Mixup", "CutMix", "MixupOrCutMix"):
    mix = getattr(zetamix, kind)(num_classes=8, generator=torch.Generator())
    mixed, targets = mix(samples, labels)
    mix.generator.manual_seed(mix.generator.initial_seed())
    plan = mix.make_plan(8, size=(9, 9))
    dispatch.REFERENCE_ONLY = True
    torch.testing.assert_close(mixed, zetamix.apply_plan(samples, plan))
    dispatch.REFERENCE_ONLY = False
    torch.testing.assert_close(targets, plan.matrix())
print(zetamix.__file__, {"rich", "numpy"} & set(sys.modules))
"""


def test_the_core_mixes_with_torch_alone(bare):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    loop = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL).group(1)
    assert "ZetaMix(" in loop
    checks = "assert loss.item() > 0 and labels.shape == (64, 10)\n"
    assert run_bare(bare, loop + checks + MIX) == f"{bare / 'zetamix/__init__.py'} set()\n"


def test_the_command_says_what_is_missing(bare):
    program = (
        "from zetamix_lab.cli import main\ntry:\n    main()\nexcept SystemExit as end: print(end)"
    )
    assert "pip install 'zetamix[lab]'" in run_bare(bare, program)


def test_importing_adds_little_to_importing_torch(bare):
    """At most a tenth, in CPU time of one process."""
    program = (
        "import time; start = time.process_time(); import torch; middle = time.process_time()\n"
        "from zetamix import ZetaMix; print((time.process_time() - middle) / (middle - start))"
    )
    assert min(float(run_bare(bare, program)) for _ in range(2)) < 0.1


def test_tests_for_a_gpu_are_collected_without_libraries_that_others_need():
    absent = ["datasets", "latex2mathml", "optuna", "pyarrow", "ray", "skdim"]
    program = f"import pytest, sys; sys.modules.update(dict.fromkeys({absent})); "
    program += "sys.exit(pytest.main(['-m', 'gpu', '--collect-only']))"
    assert "tests/library/test_kernels.py::" in run("-c", program, cwd=ROOT)
