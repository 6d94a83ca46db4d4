"""The command line: its two commands, bad input in a sentence, unexpected errors, `--json`."""

import errno
import importlib.metadata
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import typer
from factories import CRESCENTS
from miniatures import class_folders
from rich.console import Console
from typer.testing import CliRunner

from zetamix_lab.atomic_io import write_file, write_text
from zetamix_lab.cli.app import app
from zetamix_lab.cli.errors import report_errors
from zetamix_lab.cli.options import parse_device
from zetamix_lab.cli.stop import make_stop
from zetamix_lab.train.run_folder import RunFolder

PACKAGE = {"__name__": "zetamix.somewhere"}
exec("def refuse(): raise ValueError('Expected 3, got 4.')\ndef convert(): int('x')", PACKAGE)
LIBRARY = {"__name__": "numpy.somewhere"}
exec("def refuse(): raise ValueError('broadcast')", LIBRARY)
MAX_OPTIONS = 20


def invoke(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def words(text):
    """Text without the frames and line breaks of a terminal."""
    return " ".join(text.replace("│", " ").split())


# the commands


def test_there_are_two_commands_with_few_options_in_sections():
    commands = typer.main.get_command(app).commands
    assert list(commands) == ["compare", "check"]
    for command in commands.values():
        options = [part for part in command.params if part.param_type_name == "option"]
        assert 1 < len(options) <= MAX_OPTIONS
        assert all(option.rich_help_panel for option in options)
        assert len({option.rich_help_panel for option in options}) > 1


def test_version():
    result = invoke("--version")
    version = importlib.metadata.version("zetamix")
    assert (result.exit_code, result.output.strip()) == (0, f"zetamix {version}")


HEAVY = "{'torch', 'torchvision', 'torchmetrics', 'sklearn', 'joblib', 'ray', 'matplotlib'}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "allowed"),
    [
        (["--help"], 0, "set()"),
        (["compare", "-h"], 0, "set()"),
        (["--version"], 0, "set()"),
        (["compare", "--data", "no/photos"], 1, "{'torch'}"),
        (["check", "no/photos"], 1, "{'torch'}"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_what_it_needs(arguments, status, allowed):
    """A test of time would fail on a busy machine: what takes the time is these imports."""
    program = (
        "import sys\n"
        "from zetamix_lab.cli import main\n"
        "sys.argv = ['zetamix', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == {status}, end.code\n"
        "found = {HEAVY} & {{*sys.modules}}\nassert found <= {allowed}, found"
    )
    program = program.format(HEAVY=HEAVY, status=status, allowed=allowed)
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if status:
        assert done.stderr.startswith("'no/photos' is neither a dataset")


def test_completion_scripts_can_be_shown():
    result = invoke(prog_name="zetamix", env={"_ZETAMIX_COMPLETE": "source_bash"})
    assert "_ZETAMIX_COMPLETE=complete_bash" in result.output


# bad input

COMPARE = ["compare", "--data", CRESCENTS, "--out", "made"]
HUGE = "9" * 30


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["compare", "photos"],
            2,
            "unexpected argument 'photos'. If it is your data, use: zetamix",
        ),
        (["compare", "--data", "nowhere"], 1, "'nowhere' is neither a dataset"),
        (["compare", "--data", ""], 1, "'' is neither a dataset"),
        (["check", ""], 1, "'' is neither a dataset"),
        (["check", "cifra10"], 1, "Did you mean cifar10"),
        (["check", "digits", "--json", "."], 2, ". is a folder"),
        (["check", "digits", "--json", "no/file"], 2, "the folder no does not exist"),
        ([*COMPARE, "--methods", "none,zeto"], 1, "got 'zeto'. Did you mean zeta?"),
        ([*COMPARE, "--methods", "none,none"], 1, "none is given twice"),
        ([*COMPARE, "--methods", "zeta:sources=999"], 1, "999"),
        ([*COMPARE, "--until", "1.5"], 2, "Invalid value for '--until'"),
        ([*COMPARE, "--until", "0", "--methods", "mixup"], 1, "until must be above 0"),
        ([*COMPARE, "--data", "digits", "--model", "lenet5"], 1, "lenet5 does not accept samples"),
        # before the data is read
        (
            ["compare", "--data", "photos/", "--model", "resnet19"],
            1,
            "got 'resnet19'. Did you mean",
        ),
        (
            ["compare", "--data", "photos/", "--model", "timm:resnet19x"],
            1,
            "mean timm:resnet",
        ),
        (["compare", "--data", "photos/", "--model", "no.py:net"], 1, "no.py"),
        (["compare", "--data", "photos/", "--set", "weights=no.pt"], 1, "no.pt"),
        (["compare", "--data", "photos/", "--set", "rate=1"], 1, "A recipe has no 'rate'."),
        (["compare", "--data", "photos/", "--backend", "slurm"], 1, "backend must be local, ray"),
        (["compare", "--data", "photos/", "--group", "(a"], 2, "is not a regular expression"),
        ([*COMPARE, "--seeds", "0"], 2, "expected 1 to 10,000 seeds (for the single seed 0: '0,')"),
        ([*COMPARE, "--seeds", HUGE], 2, "expected 1 to 10,000 seeds, got"),
        ([*COMPARE, "--seeds", f"0,{HUGE}"], 2, "expected seeds up to 2147483647"),
        ([*COMPARE, "--seeds", "9" * 9999], 2, "expected a number of seeds or a list"),
        ([*COMPARE, "--seeds", "0,0"], 2, "expected distinct seeds"),
        ([*COMPARE, "--epochs", "0"], 2, "Invalid value for '--epochs'"),
        ([*COMPARE, "--epochs", HUGE], 2, "Invalid value for '--epochs'"),
        ([*COMPARE, "--jobs", "0"], 2, "Invalid value for '--jobs'"),
        ([*COMPARE, "--jobs", HUGE], 2, "Invalid value for '--jobs'"),
        ([*COMPARE, "--size", HUGE], 2, "Invalid value for '--size'"),
        ([*COMPARE, "--size", "8"], 1, "size is for image files"),
        (
            [*COMPARE, "--data", "digits", "--skip-broken"],
            1,
            "skip_broken is for your own images only",
        ),
        ([*COMPARE, "--train-size", "1"], 1, "size must lie between 2 (one of each class) and 512"),
        ([*COMPARE, "--train-size", HUGE], 1, "and 512 (the whole split)"),
        ([*COMPARE, "--train-size", "-0.5"], 2, "Invalid value for '--train-size'"),
        ([*COMPARE, "--train-size", "few"], 2, "Invalid value for '--train-size'"),
        ([*COMPARE, "--device", "tpu"], 2, "expected cpu or cuda, got 'tpu'"),
        ([*COMPARE, "--time-limit", "soon"], 2, "Expected a duration such as 9m, 1h30m or 45s"),
        ([*COMPARE, "--log", "wandb"], 1, "Expected tensorboard, got 'wandb'"),
        ([*COMPARE, "--out", " "], 2, "expected a folder, got an empty string"),
        (["check", CRESCENTS, "--data-dir", ""], 2, "expected a folder, got an empty string"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_bad_input_is_reported_in_a_sentence(arguments, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "photos/" in arguments:
        # cannot be read: an error before is not of the data
        (tmp_path / "photos").mkdir()
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert message in words(result.output)
    assert "Traceback" not in result.output
    # nothing is left behind by what was never begun
    assert [path.name for path in tmp_path.iterdir()] in ([], ["photos"])


def refused(read, *arguments):
    with pytest.raises(typer.BadParameter) as caught:
        read(*arguments)
    return caught.value.message


def test_devices_are_those_of_torch(gpus):
    gpus(0)
    assert parse_device(None) == torch.device("cpu")
    assert refused(parse_device, "cuda") == "torch finds no CUDA device; use cpu"
    gpus(2)
    assert parse_device(None) == torch.device("cuda")
    assert parse_device("cuda:1") == torch.device("cuda", 1)
    assert "below 2" in refused(parse_device, "cuda:2")
    for name in ("tpu", "cuda:x", "cuda:-1", "cuda:", "cuda:01", ""):
        assert refused(parse_device, name) == f"expected cpu or cuda, got {name!r}"


@pytest.fixture
def gpus(monkeypatch):
    def pretend(count):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)

    return pretend


# other errors


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
    "call",
    [
        PACKAGE["convert"],
        LIBRARY["refuse"],
        lambda: {}["key"],
        lambda: raise_error(AssertionError()),
    ],
    ids=["int", "library", "KeyError", "empty"],
)
def test_any_other_error_asks_to_be_reported(call):
    with pytest.raises(Exception) as caught, report_errors():
        call()
    assert "please report it" in caught.value.__notes__[-1]


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


def test_text_that_is_no_utf8_is_written(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    write_text(tmp_path / "file.json", f'"{name}"')
    assert json.loads((tmp_path / "file.json").read_text()) == name


# Ctrl-C


def test_ctrl_c_is_acknowledged_before_anything_is_saved():
    console = Console(file=io.StringIO(), width=100)
    with make_stop(None, 0.0, console) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert "Stopping …" in console.file.getvalue()
        assert "Press Ctrl-C again to quit at once" in console.file.getvalue()
        assert stop()


def test_a_signal_of_a_closed_terminal_is_no_error():
    class Closed(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    with make_stop(None, 0.0, Console(file=Closed())) as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.2, 1.2, 2.5])
def test_ctrl_c_at_the_start_leaves_no_traceback(seconds, tmp_path):
    program = "import sys; from zetamix_lab.cli import main; print('main', flush=True); main()"
    command = [sys.executable, "-c", program, "compare", "--epochs", "2000", "--device", "cpu"]
    command += ["--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout.readline() == "main\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=100)[0]
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in text


# results as JSON


@pytest.mark.slow
def test_results_alone_are_on_standard_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = json.loads(invoke("check", CRESCENTS, "--json", "-").stdout)
    assert found["problems"] == []
    options = "--train-size 64 --epochs 1 --seeds 1 --methods none,mixup --device cpu --jobs 1"
    result = invoke("compare", "--data", CRESCENTS, *options.split(), "--json", "-")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["seeds"] == [0]


def check_to(path):
    """The results of `zetamix check`, written to a path."""
    result = invoke("check", CRESCENTS, "--json", path)
    assert result.exit_code == 0, result.output
    return json.loads(path.read_text())["name"] if path.is_file() else None


def test_a_link_keeps_its_name_and_its_file_gets_the_results(tmp_path):
    (tmp_path / "results.json").write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "results.json")
    assert check_to(link) == check_to(tmp_path / "results.json") == "crescents"
    assert link.is_symlink()


def test_a_pipe_is_written_to(tmp_path):
    pipe, seen = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: seen.append(json.loads(pipe.read_text())))
    reader.start()
    check_to(pipe)
    reader.join(10)
    assert seen[0]["name"] == "crescents"
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_device_is_never_replaced(tmp_path):
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    result = invoke("check", CRESCENTS, "--json", link)
    assert (result.exit_code, "No space left" in words(result.output)) == (1, True)
    check_to(Path("/dev/null"))
    assert all(Path(device).is_char_device() for device in ("/dev/full", "/dev/null"))


# while data is read


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        ("compare --set select=map --data", "decoding"),
        ("check", "checking"),
    ],
)
def test_a_terminal_shows_how_far_a_folder_is_read(command, shows, tmp_path, monkeypatch):
    """`compare` ends once the data is there: it has no metric of that name."""
    # rich takes anything for a terminal then
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    photos = class_folders(tmp_path / "photos", {"cat": 10, "dog": 10})
    result = invoke(*command.split(), photos)
    assert shows in result.stderr
    assert "20/20" in result.stderr
