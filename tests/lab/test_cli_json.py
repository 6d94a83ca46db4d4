"""`--json`: every command writes its results, to a file or alone on standard output."""

import json

import pytest
from typer.testing import CliRunner

from zetamix_lab.cli.app import app

TUNE = (
    "tune --data crescents --train-size 64 --epochs 1 --space gamma=2|3 --sampler random "
    "--trials 2 --test-seeds 0 --device cpu --jobs 1 --log tensorboard"
)
INSPECT = (
    "inspect --samples 40 --neighbours 4 --batch-size 8 --gammas 2,3 --oracle none --device cpu "
    "--methods zeta:2.8"
)
COMMANDS = {
    "data list": lambda found: "cifar10" in [entry["name"] for entry in found],
    "data info cifar10": lambda found: (found["shape"], found["prepared"]) == ([3, 32, 32], None),
    "data prepare digits": lambda found: found["sizes"]["train"] == 1257 and found["prepared"],
    "data check crescents": lambda found: found["problems"] == [],
    "reproduce --list": lambda found: all(e["done"] + e["missing"] == e["cells"] for e in found),
    "reproduce theorems --quick": lambda found: found[0]["id"] == "theorems" and found[0]["ran"],
    INSPECT: lambda found: found["dataset"] == "digits",
    TUNE: lambda found: len(found["trials"]) == 2,
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda text: " ".join(text.split()[:2]))
def test_results_alone_are_on_standard_output(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "data"))
    result = CliRunner().invoke(app, [*command.split(), "--json", "-"])
    assert result.exit_code == 0, (result.output, result.exception)
    assert COMMANDS[command](json.loads(result.stdout))
    if command == TUNE:
        # every trial has its curve
        assert len(list(tmp_path.glob("out/tune-crescents/trials/*/tensorboard/events*"))) == 2


@pytest.mark.parametrize("command", ["compare", "train", "tune", "inspect", "reproduce", "bench"])
def test_every_command_has_the_option(command):
    assert "--json" in CliRunner().invoke(app, [command, "-h"], env={"COLUMNS": "200"}).output


def test_a_file_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    result = CliRunner().invoke(app, ["train", "--json", str(tmp_path)])
    assert result.exit_code == 2
    # the frame of an error breaks lines anywhere
    assert "is a folder" in " ".join(result.output.replace("│", " ").split())


def test_completion_scripts_can_be_shown():
    result = CliRunner().invoke(
        app, [], prog_name="zetamix", env={"_ZETAMIX_COMPLETE": "source_bash"}
    )
    assert "_ZETAMIX_COMPLETE=complete_bash" in result.output
