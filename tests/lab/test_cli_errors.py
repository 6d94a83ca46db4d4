"""Errors of the command line: sentences for what a user can mend, a file for everything else."""

import errno
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import zetamix
from zetamix.atomic_io import write_file, write_text
from zetamix_lab.cli.app import app
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.train.run_folder import RunFolder

PACKAGE = {"__name__": "zetamix.somewhere"}
exec("def refuse(): raise ValueError('Expected 3, got 4.')\ndef convert(): int('x')", PACKAGE)
LIBRARY = {"__name__": "numpy.somewhere"}
exec("def refuse(): raise ValueError('broadcast')", LIBRARY)


def run(call, capsys):
    """The exit status, and what was printed on stderr."""
    with pytest.raises(typer.Exit) as caught, report_errors():
        call()
    return caught.value.exit_code, " ".join(capsys.readouterr().err.split())


def raise_error(error):
    raise error


def test_an_error_that_this_package_raised_is_a_sentence(capsys):
    assert run(PACKAGE["refuse"], capsys) == (1, "Expected 3, got 4.")


@pytest.mark.parametrize(
    ("call", "summary"),
    [
        (PACKAGE["convert"], "ValueError: invalid literal for int() with base 10: 'x'"),
        (LIBRARY["refuse"], "ValueError: broadcast"),
        (lambda: {}["key"], "KeyError: there is no 'key'"),
        (lambda: raise_error(AssertionError()), "AssertionError: AssertionError"),
        (lambda: raise_error(OSError(errno.ENOSPC, "No space left on device")), "OSError: No sp"),
    ],
    ids=["int", "library", "KeyError", "empty", "no path"],
)
def test_any_other_error_is_a_line_and_a_file(call, summary, capsys):
    status, text = run(call, capsys)
    assert status == 1
    assert text.startswith(f"Unexpected error ({summary}")
    (path,) = map(Path, re.findall(r"the traceback in (\S+?\.txt)", text))
    content = path.read_text()
    path.unlink()
    assert "Traceback (most recent call last)" in content
    assert content.startswith("zetamix ")
    assert path.name.startswith("zetamix-error-")


def test_an_error_is_reported_from_a_checkout_that_is_not_installed(capsys, monkeypatch):
    def version(package):
        if package == "zetamix":
            raise importlib.metadata.PackageNotFoundError(package)
        return "1.2.3"

    monkeypatch.setattr(importlib.metadata, "version", version)
    _, text = run(lambda: {}["key"], capsys)
    (path,) = map(Path, re.findall(r"traceback in (\S+?\.txt)", text))
    content = path.read_text()
    path.unlink()
    assert content.startswith(f"zetamix {zetamix.__version__}, torch 1.2.3, ")


def test_the_file_of_an_error_holds_no_password(capsys, monkeypatch):
    url = "postgresql://ann:S3cr@et/s '\"S3cr@host/db?user=u&password=S3cret"
    monkeypatch.setattr(sys, "argv", ["zetamix", "tune", "--storage", url, f"--storage={url}"])
    _, text = run(lambda: raise_error(RuntimeError(f"no connection to {url!r}")), capsys)
    (path,) = map(Path, re.findall(r"the traceback in (\S+?\.txt)", text))
    content = path.read_text()
    path.unlink()
    assert "S3cr" not in content + text
    assert "zetamix tune --storage" in content


def test_a_full_disk_is_named(tmp_path, capsys):
    def fill(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    status, text = run(lambda: write_file(tmp_path / "record.json", fill), capsys)
    expected = f"Cannot use {tmp_path / 'record.json'}: No space left on device. Free some space,"
    assert (status, text.startswith(expected)) == (1, True), text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_every_writer_names_its_file(tmp_path):
    """/dev/full takes no byte."""
    curve = tmp_path / "metrics.jsonl"
    curve.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        RunFolder(tmp_path).add_epoch({"epoch": 1})
    assert caught.value.filename == str(curve)


@pytest.mark.parametrize("text", ["", "  "])
@pytest.mark.parametrize(
    "words",
    [
        ["train", "--data", "digits", "--out"], ["compare", "--data", "digits", "--out"],
        ["tune", "--data", "digits", "--out"], ["train", "--data", "digits", "--data-dir"],
        ["inspect", "--data", "digits", "--out"], ["reproduce", "theorems", "--out"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_empty_folder_is_refused(words, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*words, text])
    assert done.exit_code == 2
    assert "expected a folder, got an empty string" in " ".join(
        done.output.replace("│", " ").split()
    )
    assert list(tmp_path.iterdir()) == []


def test_empty_data_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["train", "--data", ""], ["data", "check", ""]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 1
        assert "'' is neither a dataset of the catalogue nor" in " ".join(done.output.split())


def test_text_that_is_no_utf8_is_written(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    write_text(tmp_path / "file.json", f'"{name}"')
    assert json.loads((tmp_path / "file.json").read_text()) == name


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.4, 1.2, 2.5])
def test_ctrl_c_at_the_start_leaves_no_traceback(seconds, tmp_path):
    command = [sys.executable, "-m", "zetamix_lab", "train", "--epochs", "2000", "--device", "cpu"]
    command += ["--out", str(tmp_path / "out"), "--data-dir", str(tmp_path / "data")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=100)[0]
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in text


@pytest.mark.parametrize("command", ["compare", "train", "tune", "inspect"])
def test_a_path_that_does_not_exist_is_reported_before_slow_imports(command):
    """A test of time would fail on a busy machine: what takes the time is these imports."""
    program = (
        "import sys\n"
        "from zetamix_lab.cli import main\n"
        "sys.argv = ['zetamix', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 1, end.code\n"
        "slow = {'torchvision', 'torchmetrics', 'optuna', 'joblib'} & {*sys.modules}\n"
        "assert not slow, slow\n"
    )
    arguments = [sys.executable, "-c", program, command, "--data", "no/photos"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("'no/photos' is neither a dataset of the catalogue nor an ")
