"""What a user reads is true: code runs, commands exist, links lead somewhere, the site builds."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import markdown
import pytest
import typer
from browser import needs_browser, open_page
from filelock import FileLock

from benchmarks import render as speed
from benchmarks.__main__ import parse as parse_benchmark
from docs_build import docstrings, equations
from paper.__main__ import app as paper
from paper.artifacts import ARTIFACTS
from results import render as results
from zetamix.methods import parse_list
from zetamix_lab.cli.app import app as commands

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
BLOCK = re.compile(r"^```python\b[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")
# libraries with settings of their own for the whole process: backends, warnings, start methods
ALONE = {"docs/how-to/keras.md": "keras", "docs/how-to/fastai.md": "fastai"}
# libraries that neither the package nor its development needs
RECIPES = ALONE | {
    "docs/how-to/monai.md": "monai",
    "docs/how-to/numpy-and-jax.md": "jax",
    "docs/how-to/choosing-gamma.md": "optuna",
}
# importing these takes seconds
SLOW = {
    *RECIPES,
    *(
        f"docs/how-to/{name}.md"
        for name in (
            "timm",
            "lightning",
            "transformers",
            "several-gpus",
            "image-folder",
            "own-training",
        )
    ),
}


def blocks_of(path):
    """(first line, code) of every Python block."""
    text = path.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in BLOCK.finditer(text)
    ]


def program_of(path):
    """All Python blocks of a page as one program, each at its line, so that errors name it."""
    program = ""
    for line, code in blocks_of(path):
        program += "\n" * (line - 1 - program.count("\n")) + code
    return program


def run_page(path):
    exec(compile(program_of(path), str(path), "exec"), {"__name__": "page"})


def run_alone(path, folder, *launcher):
    """Run a page as a script, in a process of its own or in those of a launcher; its output."""
    program = folder / "page.py"
    program.write_text(program_of(path), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *launcher, program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


WITH_CODE = [name for name in NAMES if blocks_of(ROOT / name)]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in WITH_CODE],
)
@pytest.mark.filterwarnings("ignore")  # of other libraries about themselves
def test_code_runs(name, tmp_path, monkeypatch):
    library = RECIPES.get(name)
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"needs the package {library}: pip install {library}")
    if name in ALONE:
        run_alone(ROOT / name, tmp_path)
        return
    monkeypatch.chdir(tmp_path)
    # the job of one process that a page sets up ends with the test
    monkeypatch.setattr(os, "environ", os.environ.copy())
    run_page(ROOT / name)


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    printed = run_alone(DOCS / "how-to" / "several-gpus.md", tmp_path, *launcher)
    sums = dict(re.findall(r"rank (\d): (-?\d+\.\d{6})", printed))  # perhaps on one line
    assert sums.keys() == {"0", "1"}
    assert sums["0"] == sums["1"]


@pytest.mark.parametrize("name", NAMES)
def test_no_block_is_missed_however_it_is_written(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    fences = [line.strip() for line in text.splitlines() if re.match(r"\s*(```|~~~)\S", line)]
    # pytest runs these; `math` is an equation, `text` nothing to run
    assert set(fences) <= {"```python", "```console", "```math", "```text"}, set(fences)
    assert len(blocks_of(ROOT / name)) == fences.count("```python")
    assert len(CONSOLE.findall(text)) == fences.count("```console")


def test_a_block_that_fails_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nvalue = 1\n```\n\n```python\nassert value == 2\n```\n")
    assert [line for line, _ in blocks_of(page)] == [4, 8]
    with pytest.raises(AssertionError) as caught:
        run_page(page)
    assert caught.traceback[-1].lineno + 1 == 8


# commands


def commands_of(name):
    """Every command that a page shows, without its comment."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = [line for block in CONSOLE.findall(text) for line in block.splitlines() if line.strip()]
    return [shlex.split(line, comments=True) for line in lines]


def check_command(words):
    """Raise unless the command exists with these options and values."""
    program, *rest = words
    if program == "zetamix":
        check_typer(commands, program, rest)
    elif program == "torchrun":
        assert re.fullmatch(r"--nproc-per-node=\d+ \w+\.py", " ".join(rest)), rest
    elif program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert rest[0] in targets
    elif program == "pip":
        assert rest[0] == "install"
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        place, _, extras = rest[-1].rstrip("]").partition("[")
        assert place in (".", "zetamix"), rest
        assert set(filter(None, extras.split(","))) <= set(project["optional-dependencies"])
    elif program == "python" and rest[0] == "-m":
        check_module(rest[1], rest[2:])
    elif program == "python":
        assert (ROOT / rest[0]).is_file()
    else:
        raise AssertionError(f"nothing checks {program}")


def check_typer(app, name, words):
    """Parse with the command's own parser, without running it."""
    command = typer.main.get_command(app)
    context = command.make_context(name, list(words))
    while getattr(command, "commands", None):
        # what a group leaves over begins with the name of a command
        words = list(words)[list(words).index(next(w for w in words if w in command.commands)) :]
        name, command = words[0], command.commands[words[0]]
        words = words[1:]
        context = command.make_context(name, list(words), parent=context)
    if context.params.get("methods"):
        parse_list(context.params["methods"])
    return context.params


def check_module(module, words):
    if module == "paper":
        ids = check_typer(paper, module, words)["ids"] or ()
        assert set(ids) <= {*ARTIFACTS, "page"} or ids[0] == "data"
    elif module == "benchmarks":
        parse_benchmark(words)
    else:
        assert importlib.util.find_spec(module) is not None
        assert not words


SHOWN = [(name, words) for name in NAMES for words in commands_of(name)]


@pytest.mark.parametrize(
    ("name", "words"), SHOWN, ids=[f"{name}: {' '.join(words)}" for name, words in SHOWN]
)
def test_commands_exist(name, words, monkeypatch):
    # commands say at once that there is no GPU
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    check_command(words)


WRONG = [
    "zetamix compare --dataset photos/",
    "zetamix comparison",
    "zetamix compare --epochs many",
    "zetamix compare --methods zetta:2.8",
    "zetamix check --near photos/",
    "python -m paper figure99",
    "python -m benchmarks --rows 3",
    "make sandwich",
    "pip install '.[clii]'",
    "cargo build",
]


@pytest.mark.parametrize("line", WRONG)
def test_a_command_that_does_not_exist_is_seen(line):
    # typer's errors are not AssertionErrors; those of a missing command are StopIterations
    with pytest.raises((Exception, SystemExit)):
        check_command(shlex.split(line))


# links; those between pages of the site are checked by its build as well, with their anchors


def anchors_of(path):
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("name", [*NAMES, "CONTRIBUTING.md", "results/README.md"])
def test_links_lead_to_files(name):
    path = ROOT / name
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            assert re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{5}", target), target
            continue
        file, _, anchor = target.partition("#")
        found = path.parent / file if file else path
        assert found.is_file(), f"{name} links to {target}"
        # anchors that are made while the site is built are checked there
        if anchor and found.suffix == ".md" and name == "README.md":
            assert anchor in anchors_of(found), f"{name} links to {target}"


def test_every_page_is_in_the_navigation_and_every_public_name_in_the_reference():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for path in DOCS.rglob("*.md"):
        assert path.relative_to(DOCS).as_posix() in navigation
    reference = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    names = (ROOT / "tests" / "public_names.txt").read_text().split()
    assert len(names) >= 15
    for name in names:
        described = "# Rules" if name == "rules" else rf"::: zetamix\.\w+\.{name}"
        assert re.search(rf"^{described}$", reference, re.MULTILINE), name
        assert f"`{name}`" in reference


# numbers


SPEED_PAGE = speed.PAGE.relative_to(ROOT).as_posix()
TABLE = re.compile(r"(<!-- ([\w-]+) -->).*?(<!-- /\2 -->)", re.DOTALL)


@pytest.mark.parametrize("page", [*results.PAGES, SPEED_PAGE])
def test_tables_show_what_was_measured(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    emptied = TABLE.sub(r"\1\3", text)
    assert emptied != text
    written = speed.render(emptied) if page == SPEED_PAGE else results.render(emptied, page)
    assert written == text, "run: make results"


@pytest.mark.parametrize("module", [results, speed])
def test_a_page_without_its_place_is_an_error(module):
    with pytest.raises(ValueError, match="<!-- /"):
        module.render("no place here")


# the site


def test_docstrings_become_markdown():
    """An argument list, names that are linked, an example."""
    text = "Draw.\n\nsize, step: of `Blend`,\n    each.\np: `a.b`.\n\nSee:\n>>> draw()\n3"
    assert docstrings.to_markdown(text, {"Blend": "zetamix.rules.Blend"}) == (
        "Draw.\n\n- `size`, `step`: of [`Blend`][zetamix.rules.Blend], each.\n- `p`: `a.b`.\n\n"
        "See:\n\n```pycon\n>>> draw()\n3\n```"
    )


def test_equations_become_mathml():
    assert equations.to_mathml(r"\gamma").startswith("<math")
    text = "An $x_i$, `$HOME`, $5 and 6 $."
    html = markdown.markdown(text, extensions=[equations.Equations()])
    assert html.count("<math") == 1
    assert "<code>$HOME</code>, $5 and 6 $." in html
    with pytest.raises(ValueError, match=r"does not know \\zetta in"):
        equations.to_mathml(r"\zetta(\gamma)")


def build(folder):
    """Build the site into a folder; every warning is an error."""
    # with --quiet warnings are not counted
    command = [Path(sys.executable).with_name("mkdocs"), "build", "--strict"]
    return subprocess.run(
        [*command, "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id):
    """The site, built once for all processes of pytest-xdist."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent
    with FileLock(shared / "site.lock"):
        if not (shared / "site").exists():
            done = build(shared / "site")
            assert done.returncode == 0, done.stdout + done.stderr
            assert "WARNING" not in done.stderr
    return shared / "site"


@pytest.mark.slow
def test_the_site_makes_no_request_to_another_site(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) >= len(PAGES) - 1
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?:)", text)
        assert not loaded, page
        # places that nothing has filled
        assert not re.search(r"<!-- (verdicts|section|artifact|figure|status|commands)", text), page


@pytest.mark.slow
def test_the_site_holds_what_is_generated(site):
    commands = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    for name in ("compare", "check"):
        assert f'id="zetamix-{name}"' in commands
    assert "--skip-broken" in commands
    method = (site / "understand" / "method.html").read_text(encoding="utf-8")
    assert method.count('<div class="equation"><math') == 4
    assert "$" not in re.sub(r"<(code|script|pre).*?</\1>", "", method, flags=re.DOTALL)
    paper = (site / "results" / "paper.html").read_text(encoding="utf-8")
    assert "25 of 180" in paper
    assert (site / "results" / "figures" / "theorems.svg").stat().st_size > 10_000
    assert (site / "playground" / "index.html").is_file()


@needs_browser
@pytest.mark.parametrize("page", ["index", "results/paper", "reference/transforms"])
def test_pages_open_as_files_on_a_telephone(page, site, tmp_path):
    opened = open_page(site / f"{page}.html", width=390)
    assert opened.errors == []
    assert opened.failures == []
    assert opened.overflow <= 0
