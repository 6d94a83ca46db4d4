"""The package as a whole: its import, its public names, its call path, where randomness is."""

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
import typing_cases

import zetamix

SOURCE = Path(zetamix.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
PUBLIC_NAMES = Path(__file__).with_name("public_names.txt")

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


@pytest.fixture(scope="module")
def fresh_import(tmp_path_factory):
    """What `import zetamix` did to a fresh interpreter: (its output, its report)."""
    folder = tmp_path_factory.mktemp("import")
    report = folder / "report.json"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(report)],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    left_behind = sorted(path.name for path in folder.iterdir())
    return done.stdout + done.stderr, json.loads(report.read_text()), left_behind


def test_import_pulls_in_nothing_beyond_torch_and_the_standard_library(fresh_import):
    new = set(fresh_import[1]["new"]) - {"torch"}
    assert new - set(sys.stdlib_module_names) == {"zetamix"}


def test_import_has_no_side_effects(fresh_import):
    output, report, left_behind = fresh_import
    assert output == ""
    assert report["same_state"]
    assert report["same_settings"]
    assert not report["cuda"]
    assert left_behind == ["report.json"]


def public_names(module):
    """The names that a module defines or re-exports as `X as X`, by its source."""
    names = set()
    body = ast.parse(Path(module.__file__).read_text()).body
    # imports for type checkers alone, of names that are loaded when they are used
    lazy = [part for node in body if isinstance(node, ast.If) for part in node.body]
    for node in [*body, *lazy]:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if name and not name.startswith("_")}


def test_public_names_are_the_frozen_ones():
    names = PUBLIC_NAMES.read_text().split()
    assert sorted(public_names(zetamix)) == names
    assert len(names) <= 16


def test_public_names_are_found_when_they_are_used():
    assert set(PUBLIC_NAMES.read_text().split()) <= set(dir(zetamix))
    for name in PUBLIC_NAMES.read_text().split():
        assert getattr(zetamix, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'zeta_mixdown'"):
        zetamix.zeta_mixdown  # noqa: B018


def test_every_public_name_has_a_docstring():
    undocumented = [
        name
        for name in PUBLIC_NAMES.read_text().split()
        if callable(getattr(zetamix, name)) and not getattr(zetamix, name).__doc__
    ]
    assert undocumented == []


PACKAGES = [
    "zetamix",
    *(
        module.name
        for module in pkgutil.walk_packages(zetamix.__path__, "zetamix.")
        if module.ispkg
    ),
]


@pytest.mark.parametrize("name", PACKAGES)
def test_no_public_name_shadows_a_submodule(name):
    package = importlib.import_module(name)
    shadowing = []
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in public_names(package):
            value = getattr(package, module.name)
            same = isinstance(value, types.ModuleType) and value.__name__ == f"{name}.{module.name}"
            shadowing += [] if same else [module.name]
    assert shadowing == []


def imports_of(path):
    """The modules of zetamix that a file imports, also inside functions."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("zetamix"):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules |= names | {node.module}
    return modules


def test_the_core_has_no_import_cycle():
    core = [*SOURCE.glob("*.py"), *SOURCE.glob("kernels/*.py")]
    names = {path: ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in core}
    left = {
        names[path]: imports_of(path) & set(names.values())
        for path in core
        if path.name not in ("__init__.py", "__main__.py")
    }
    while left:
        free = [name for name, imported in left.items() if not imported & set(left)]
        assert free, f"these import each other: {left}"
        for name in free:
            del left[name]


def test_a_plain_call_is_short_to_walk():
    """Files and Python calls of one warm CPU call; torchvision's MixUp makes 24 in 4 files."""
    mix = zetamix.ZetaMixup(num_classes=10)
    images, labels = torch.rand(64, 3, 32, 32), torch.randint(10, (64,))
    mix(images, labels)
    calls = []

    def count(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            calls.append(frame.f_code.co_filename)

    sys.setprofile(count)
    try:
        mix(images, labels)
    finally:
        sys.setprofile(None)
    assert 0 < len(calls) <= 61
    assert len(set(calls)) <= 7


GLOBAL = (
    "torch.manual_seed",
    "torch.seed",
    "torch.cuda.manual_seed",
    "torch.cuda.seed",
    "torch.random.",
    "torch.set_rng_state",
    "torch.default_generator.",
    "np.random.",
    "numpy.random.",
    "random.",
)
# a generator of one's own, and the one place that borrows torch's default one and gives it back
ALLOWED = {"np.random.default_rng", "torch.random.fork_rng"}
BORROWED = {"seeds.py": ["torch.default_generator.manual_seed"]}


def offences(text):
    """Uses of global randomness in a source text; docstrings and comments may speak of it."""
    uses = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            uses += [alias.name for alias in node.names if alias.name in ("random", "numpy.random")]
        elif isinstance(node, ast.ImportFrom):
            uses += [node.module] if node.module in ("random", "numpy.random") else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = ast.unparse(node.func)
            uses += [name] if name.startswith(GLOBAL) and name not in ALLOWED else []
    return uses


# the benchmark plays other libraries, with the randomness they use
CORE = [path for path in FILES if path.parent.name != "bench"]


@pytest.mark.parametrize("path", CORE, ids=[str(path.relative_to(SOURCE)) for path in CORE])
def test_nothing_seeds_or_uses_global_randomness(path):
    name = path.relative_to(SOURCE).as_posix()
    assert offences(path.read_text()) == BORROWED.get(name, [])


@pytest.mark.parametrize(
    "text",
    [
        "from numpy.random import default_rng",
        "import random",
        "torch.manual_seed(0)",
        "torch.cuda.manual_seed_all(0)",
        "torch.set_rng_state(state)",
        "torch.default_generator.manual_seed(0)",
        "np.random.rand(3)",
        "np.random.seed(0)",
        "random.shuffle(rows)",
    ],
)
def test_global_randomness_would_be_noticed(text):
    assert len(offences(text)) == 1


@pytest.mark.parametrize(
    "text", ["torch.Generator().manual_seed(0)", "np.random.default_rng(0)", "import numpy as np"]
)
def test_randomness_of_ones_own_is_no_offence(text):
    assert offences(text) == []


def test_the_walk_sees_every_module():
    names = {path.relative_to(SOURCE).as_posix() for path in FILES}
    assert names >= {"sampling.py", "plan.py", "mix.py", "kernels/reference.py"}


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").is_file()
    typing_cases.tensors_stay_tensors()
