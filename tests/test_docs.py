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
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
}
BLOCK = re.compile(r"^```python\b[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")
# how-to pages whose library neither the package nor its development needs
RECIPES = {
    "keras": "keras",
    "fastai": "fastai",
    "monai": "monai",
    "numpy-and-jax": "jax",
    "choosing-gamma": "optuna",
}
# of these, libraries with settings of their own for the whole process: backends, start methods
ALONE = ("keras", "fastai")
# importing these takes seconds
SLOW = (*RECIPES, "timm", "lightning", "transformers")
SLOW += ("several-gpus", "image-folder", "own-training")


def program_of(text):
    """All Python blocks of a page as one program, each at its line, so that errors name it."""
    program = ""
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(1))
        program += "\n" * (line - program.count("\n")) + match.group(1)
    return program


def run_alone(name, folder, *launcher):
    """Run a how-to page as a script, perhaps in the processes of a launcher; its output."""
    program = folder / "page.py"
    program.write_text(program_of(PAGES[f"docs/how-to/{name}.md"]), encoding="utf-8")
    command = [sys.executable, *launcher, program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if Path(page).stem in SLOW else [])
        for page, text in PAGES.items()
        if BLOCK.search(text)
    ],
)
@pytest.mark.filterwarnings("ignore")  # of other libraries about themselves
def test_code_runs(page, tmp_path, monkeypatch):
    name = Path(page).stem
    library = RECIPES.get(name)
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"needs the package {library}: pip install {library}")
    if name in ALONE:
        run_alone(name, tmp_path)
        return
    monkeypatch.chdir(tmp_path)
    # the job of one process that a page sets up ends with the test
    monkeypatch.setattr(os, "environ", os.environ.copy())
    exec(compile(program_of(PAGES[page]), page, "exec"), {"__name__": "page"})


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    printed = run_alone("several-gpus", tmp_path, *launcher)
    sums = dict(re.findall(r"rank (\d): (-?\d+\.\d{6})", printed))  # perhaps on one line
    assert sums.keys() == {"0", "1"}
    assert sums["0"] == sums["1"]


@pytest.mark.parametrize("page", PAGES)
def test_no_block_is_missed_however_it_is_written(page):
    text = PAGES[page]
    fences = [line.strip() for line in text.splitlines() if re.match(r"\s*(```|~~~)\S", line)]
    # pytest runs these; `math` is an equation, `text` nothing to run
    assert set(fences) <= {"```python", "```console", "```math", "```text"}, set(fences)
    assert len(BLOCK.findall(text)) == fences.count("```python")
    assert len(CONSOLE.findall(text)) == fences.count("```console")


# commands


def check_command(line):
    """Raise unless the command exists with these options and values."""
    match shlex.split(line):
        case ["zetamix", *words]:
            parse_list(check_typer(commands, words).get("methods") or "none")
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case ["pip", "install", place]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", place).group(1)
            assert set((extras or "lab").split(",")) <= set(project["optional-dependencies"])
        case ["python", "-m", "paper", *words]:
            ids = check_typer(paper, words)["ids"] or ()
            assert set(ids) <= {*ARTIFACTS, "page"}
        case ["python", "-m", "benchmarks", *words]:
            parse_benchmark(words)
        case ["python", "-m", module]:
            assert importlib.util.find_spec(module) is not None
        case _:
            raise AssertionError(f"nothing checks {line}")


def check_typer(app, words):
    """Parse with the command's own parser, without running it."""
    command = typer.main.get_command(app)
    context = command.make_context("command", list(words))
    if hasattr(command, "commands"):
        command = command.commands[words[0]]
        context = command.make_context(words[0], list(words[1:]), parent=context)
    return context.params


SHOWN = [
    line.partition(" #")[0].strip()
    for text in PAGES.values()
    for block in CONSOLE.findall(text)
    for line in block.splitlines()
    if line.strip()
]


@pytest.mark.parametrize("line", sorted(set(SHOWN)))
def test_commands_exist(line, monkeypatch):
    # commands say at once that there is no GPU
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    check_command(line)


# links; those between pages of the site are checked by its build, with their anchors


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "results/README.md"])
def test_links_lead_to_files(name):
    path = ROOT / name
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        if file.startswith("https:"):
            continue
        found = path.parent / file if file else path
        assert found.is_file(), f"{name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            words = [re.sub(r"[^\w\- ]", "", heading) for heading in headings]
            anchors = [word.strip().lower().replace(" ", "-") for word in words]
            assert anchor in anchors, f"{name} links to {target}"


def test_links_to_other_sites_lead_to_papers():
    links = [target for text in PAGES.values() for target in LINK.findall(text)]
    for target in (link for link in links if re.match(r"\w+:", link)):
        assert re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{5}", target), target


def test_every_public_name_is_in_the_reference():
    reference = "".join(text for page, text in PAGES.items() if "/reference/" in page)
    names = (ROOT / "tests" / "public_names.txt").read_text().split()
    for name in names:
        described = "# Rules" if name == "rules" else rf"::: zetamix\.\w+\.{name}"
        assert re.search(rf"^{described}$", reference, re.MULTILINE), name
        assert f"`{name}`" in reference


# numbers


SPEED_PAGE = speed.PAGE.relative_to(ROOT).as_posix()
TABLE = re.compile(r"(<!-- ([\w-]+) -->).*?(<!-- /\2 -->)", re.DOTALL)


@pytest.mark.parametrize("page", [*results.PAGES, SPEED_PAGE])
def test_tables_show_what_was_measured(page):
    emptied = TABLE.sub(r"\1\3", PAGES[page])
    assert emptied != PAGES[page]
    written = speed.render(emptied) if page == SPEED_PAGE else results.render(emptied, page)
    assert written == PAGES[page], "run: make results"


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


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id):
    """The site, built once for all processes of pytest-xdist; every warning is an error."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "site"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            # with --quiet warnings are not counted
            command = [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "-d", folder]
            environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert "WARNING" not in done.stderr
    return folder


@pytest.mark.slow
def test_the_site_makes_no_request_to_another_site_and_holds_what_is_generated(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) >= len(PAGES) - 1
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?:)", text)
        assert not loaded, page
        # places that nothing has filled
        assert not re.search(r"<!-- (claims|section|artifact|figure|commands)", text), page
    commands, method, paper = (
        (site / f"{page}.html").read_text(encoding="utf-8")
        for page in ("reference/command-line", "understand/method", "results/paper")
    )
    for part in ('id="zetamix-compare"', 'id="zetamix-check"', "--skip-broken"):
        assert part in commands
    assert method.count('<div class="equation"><math') == 4
    assert "$" not in re.sub(r"<(code|script|pre).*?</\1>", "", method, flags=re.DOTALL)
    for part in ("25 of 180", "Label errors and distances", "Realism and label correctness"):
        assert part in paper
    figures = {path.stem: path.stat().st_size for path in (site / "results/figures").iterdir()}
    assert figures.keys() >= {"distributions", "grid", "mnist", "theorems", "why"}
    assert min(figures.values()) > 10_000
    assert (site / "playground" / "index.html").is_file()


@needs_browser
@pytest.mark.parametrize("page", ["index", "results/paper", "reference/transforms"])
def test_pages_open_as_files_on_a_telephone(page, site):
    opened = open_page(site / f"{page}.html", width=390)
    assert (opened.errors, opened.failures) == ([], [])
    assert opened.overflow <= 0
