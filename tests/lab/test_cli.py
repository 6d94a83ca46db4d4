"""The command line: its two commands, bad input in a sentence, unexpected errors."""

import errno
import importlib.metadata
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import torch
import typer
from factories import CRESCENTS
from miniatures import class_folders
from rich.console import Console
from typer.testing import CliRunner

from zetamix import ZetaMix
from zetamix_lab.atomic_io import write_file, write_text
from zetamix_lab.cli.app import app
from zetamix_lab.cli.errors import make_stop, report_errors
from zetamix_lab.cli.options import parse_device
from zetamix_lab.provenance import machine_summary
from zetamix_lab.train.stop import parse_duration

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


# bad input

HUGE = "9" * 30
USAGE = {
    "compare photos": "unexpected argument 'photos'. If it is your data, use: zetamix compare",
    "compare --data photos/ --group (a": "is not a regular expression",
    "IMAGES --until 1.5": "Invalid value for '--until'",
    "IMAGES --train-size -0.5": "Invalid value for '--train-size'",
    "IMAGES --device tpu": "expected cpu",
    "IMAGES --time-limit soon": "Expected a duration such as 9m, 1h30m or 45s",
    "IMAGES --out ' '": "expected a folder, got an empty string",
    **{
        f"IMAGES --{name} {value}": f"Invalid value for '--{name}'"
        for name in ("epochs", "jobs", "size")
        for value in ("0", HUGE)
    },
    **{
        f"IMAGES --seeds '{text}'": "expected a number of seeds from 1 to 10,000, or a list"
        for text in ("0", "-1", HUGE, f"0,{HUGE}", "9" * 9999, "0,0", "few", "1,,2", "")
    },
}
VALUES = {
    "compare --data nowhere": "'nowhere' is neither a dataset",
    "compare --data ''": "'' is neither a dataset",
    "check cifra10": "Did you mean cifar10",
    "IMAGES --methods none,zeto": "got 'zeto'. Did you mean zeta?",
    "IMAGES --until 0 --methods mixup": "until must be finite and between 0 and 1, not 0",
    "compare --out made --data digits --model lenet5": "lenet5 needs images of at least",
    # before the data is read
    "compare --data photos/ --model resnet19": "got 'resnet19'. Did you mean",
    "compare --data photos/ --model timm:resnet19x": "Did you mean timm:resnet",
    "compare --data photos/ --model no.py:net": "no.py",
    "compare --data photos/ --set weights=no.pt": "no.pt",
    "compare --data photos/ --set rate=1": "A recipe has no 'rate'.",
    "compare --data photos/ --backend slurm": "backend must be local, ray",
    "IMAGES --size 8": "size is for image files",
    "compare --out made --data digits --skip-broken": "skip_broken is for your own images only",
    "IMAGES --train-size 1": "size must lie between 2 (one of each class) and 512",
    f"IMAGES --train-size {HUGE}": "and 512 (the whole split)",
    "IMAGES --log wandb": "Expected tensorboard, got 'wandb'",
}


@pytest.mark.parametrize(
    ("line", "message", "code"),
    [(*case, code) for code, cases in ((2, USAGE), (1, VALUES)) for case in cases.items()],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_bad_input_is_reported_in_a_sentence(line, message, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "photos/" in line:
        # cannot be read: an error before is not of the data
        (tmp_path / "photos").mkdir()
    result = invoke(*shlex.split(line.replace("IMAGES", f"compare --data {CRESCENTS} --out made")))
    assert result.exit_code == code, result.output
    assert message in words(result.output)
    assert "Traceback" not in result.output
    # nothing is left behind by what was never begun
    assert [path.name for path in tmp_path.iterdir()] in ([], ["photos"])


@pytest.mark.parametrize(("count", "default"), [(0, "cpu"), (2, "cuda")])
def test_devices_are_those_of_torch(count, default, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    assert parse_device(None) == torch.device(default)
    for name in ("cpu", "cuda", "cuda:1", "cuda:2", "tpu", "cuda:x", "cuda:-1", "cuda:01", ""):
        if name == "cpu" or (count and name in ("cuda", "cuda:1")):
            assert parse_device(name) == torch.device(name)
        else:
            with pytest.raises(typer.BadParameter, match=f"expected cpu.*, got '{name}'"):
                parse_device(name)


# other errors


def run(call, capsys):
    """The exit status, and what was printed on stderr."""
    with pytest.raises(typer.Exit) as caught, report_errors():
        call()
    return caught.value.exit_code, " ".join(capsys.readouterr().err.split())


def test_an_error_that_this_package_raised_is_a_sentence(capsys):
    status, text = run(lambda: parse_duration("soon"), capsys)
    assert (status, text[:19]) == (1, "Expected a duration")


@pytest.mark.parametrize(
    "call",
    [
        # a ValueError of int, in our code; one that a library raised; no ValueError
        lambda: machine_summary({"processor": "", "threads": "x"}),
        lambda: np.zeros(3).reshape(2),
        lambda: {}["key"],
    ],
    ids=["int", "library", "KeyError"],
)
def test_any_other_error_asks_to_be_reported(call):
    with pytest.raises(Exception) as caught, report_errors():
        call()
    assert "please report it" in caught.value.__notes__[-1]


def test_a_warning_that_is_not_ours_has_its_category_and_place(capsys):
    with report_errors():
        warnings.simplefilter("always")
        warnings.warn("of mine", RuntimeWarning, stacklevel=1)
        torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)]), 1).step()
        ZetaMix(num_classes=4)(torch.rand(8, 3, 8, 8), torch.arange(8) % 4)
    mine, theirs, ours = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"RuntimeWarning: of mine \({re.escape(__file__)}:\d+\)", mine)
    assert re.fullmatch(r"UserWarning: Detected call of `lr_scheduler.* \(.*\.py:\d+\)", theirs)
    assert ours.startswith("The samples are not normalised")
    assert ".py" not in ours


def test_a_full_disk_is_named(tmp_path, capsys):
    def fill(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    status, text = run(lambda: write_file(tmp_path / "record.json", fill), capsys)
    expected = f"Cannot use {tmp_path / 'record.json'}: No space left on device. Free some space,"
    assert (status, text.startswith(expected)) == (1, True), text


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
