"""`zetamix train`: options, output, files, errors."""

import json
import re
import warnings
from pathlib import Path

import pytest
import torch
from folders import FINISHED, names
from PIL import Image
from typer.testing import CliRunner

from zetamix.cli.app import app
from zetamix.records import read_lines
from zetamix.train.loggers import flatten
from zetamix.train.run_folder import hold
from zetamix.train.trainer import Trainer

SMALL = ["--train-size", "100", "--epochs", "1"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def zetamix(root, tmp_path, monkeypatch):
    """Run `zetamix train …` on the CPU, in an empty folder; what it prints, in one line."""
    monkeypatch.setenv("ZETAMIX_DATA", str(root))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def run(*arguments, status=0):
        place = [] if "--device" in arguments else ["--device", "cpu"]
        result = CliRunner().invoke(app, ["train", *map(str, arguments), *place])
        assert result.exit_code == status, (result.output, result.exception)
        return " ".join(result.output.split())

    return run


def test_a_run_by_default(zetamix, tmp_path):
    text = zetamix(*SMALL)
    assert text.startswith(
        "digits: 100 training and 360 test samples, 10 classes, 1 × 8 × 8 · 1 method × 1 seed · "
        "digitnet, 1 epoch, batch size 32, no augmentation · recipe: default of this library"
    )
    folder = tmp_path / "out" / "train-digits" / "zetamix-s0"
    assert names(folder) == FINISHED
    record = json.loads((folder / "record.json").read_text())
    last, best = record["last"], record["best"]
    assert f"zetamix seed 0: error rate {100 * last['error']:.2f} % (1 of 1 runs finished)" in text
    row = (
        f"zetamix 0 {100 * last['error']:.2f} {100 * last['balanced_accuracy']:.2f} "
        f"{100 * last['f1_macro']:.2f} {last['auc']:.4f} {record['step_ms']:.2f} 0m"
    )
    assert row in text
    assert f"{100 * best['error']:.2f} Results written to out/train-digits/zetamix-s0" in text


def test_methods_and_seeds_each_have_a_folder(zetamix, tmp_path):
    text = zetamix(
        *SMALL, "--methods", "none,zeta:gamma=2.4,sources=8", "--seeds", "0,3", "--jobs", 2,
        "--out", "all",
    )  # fmt: skip
    assert names(tmp_path / "all") == [
        "none-s0", "none-s3", "zeta-gamma=2.4,sources=8-s0", "zeta-gamma=2.4,sources=8-s3",
    ]  # fmt: skip
    for seed in (0, 3):
        record = json.loads((tmp_path / "all" / f"none-s{seed}" / "record.json").read_text())
        assert (record["cell"]["method"], record["cell"]["seed"]) == ("none", seed)
    assert "4 of 4 runs finished" in text
    assert text.endswith("Results written to all")


def test_a_folder_is_of_one_run_or_of_several(zetamix, tmp_path):
    zetamix(*SMALL, "--methods", "none,zeta:2.8", "--out", "all", "--jobs", 1)
    stamp = (tmp_path / "all" / "none-s0" / "record.json").stat().st_mtime_ns
    # a single one of them again: found in its folder, and not trained into the folder of all
    zetamix(*SMALL, "--methods", "none", "--out", "all")
    assert names(tmp_path / "all") == ["none-s0", "zeta-2.8-s0"]
    assert (tmp_path / "all" / "none-s0" / "record.json").stat().st_mtime_ns == stamp
    zetamix(*SMALL, "--methods", "none", "--out", "one")
    assert names(tmp_path / "one") == FINISHED
    text = zetamix(*SMALL, "--methods", "none,zeta:2.8", "--out", "one", status=2)
    assert "one is the folder of a single run; use another for several runs" in text.replace(
        "│ ", ""
    )


def test_a_finished_run_is_shown_again_and_not_trained(zetamix, monkeypatch):
    first = zetamix(*SMALL, "--out", "mine")
    monkeypatch.setattr(Trainer, "step", None)
    again = zetamix(*SMALL, "--out", "mine")
    assert again.split("zetamix 0 ")[1] == first.split("zetamix 0 ")[1]
    assert "1 of 1 runs are finished." in again


def test_a_folder_in_use_is_reported(zetamix):
    with hold([Path("mine")], lock=".command.lock"):
        text = zetamix(*SMALL, "--out", "mine", status=1)
    assert "in use by another process" in text


def test_images_of_another_size(zetamix, tmp_path):
    generator = torch.Generator().manual_seed(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(10):
            pixels = torch.randint(256, (40, 40, 3), generator=generator, dtype=torch.uint8)
            path = tmp_path / "photos" / name / f"{number}.png"
            Image.fromarray(pixels.numpy()).save(path)
    options = ("--data", "photos", "--epochs", 1, "--set", "model=digitnet", "--methods", "none")
    assert "2 classes, 3 × 16 × 16 ·" in zetamix(*options, "--size", 16, "--out", "small")
    text = zetamix(*options, "--out", "large")
    assert "2 classes, 3 × 40 × 40 ·" in text
    # the column says that it holds the test error, not the validation error
    assert re.search(r"test\s.*error %\s.*at best\s.*val", text, re.DOTALL)


def test_a_warning_has_no_line_of_code(zetamix):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        text = zetamix(*SMALL, "--methods", "zeta:1.0", "--out", "mine")
    assert "gamma=1 is below 1.72865, the threshold for any number of sources" in text
    assert ".py" not in text


def test_a_run_of_other_settings_is_reported(zetamix):
    zetamix(*SMALL, "--out", "mine")
    text = zetamix(*SMALL, "--out", "mine", "--set", "lr=0.5", status=1)
    assert "mine is the folder of another run (lr: 0.025 there, 0.5 requested)" in text


def test_options_reach_the_recipe(zetamix, tmp_path):
    zetamix(
        "--train-size", 0.1, "--model", "mlp", "--epochs", 2, "--set", "lr=0.01", "--set",
        "schedule=steps", "--set", "milestones=1", "--out", "mine", "--device", "cpu",
    )  # fmt: skip
    cell = json.loads((tmp_path / "mine" / "cell.json").read_text())
    assert cell["train_size"] == 126
    recipe = cell["recipe"]
    assert (recipe["model"], recipe["epochs"], recipe["lr"]) == ("mlp", 2, 0.01)
    assert (recipe["schedule"], recipe["milestones"]) == ("steps", [1])


def test_points_by_name(zetamix):
    text = zetamix("--data", "crescents", "--epochs", 1, "--methods", "none")
    assert "crescents: 512 training and 512 test samples, 2 classes, 2 · 1 method" in text
    # without a validation split there is no best epoch to show
    assert "at best" not in text


@pytest.mark.parametrize("columns", [80, 100])
def test_numbers_are_never_cut_off(zetamix, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = zetamix(*SMALL, "--methods", "zeta:gamma=2.4,sources=4,anchor=random")
    assert "…" not in text


# what a user types, and the sentence that comes back
MISTAKES = [
    (["--methods", "zetta"], 1, "got 'zetta'. Did you mean zeta?"),
    (["--methods", "zeta:sources=1"], 1, "sources must be at least 2, got 1."),
    (["--data", "cifr10"], 1, "cifar10"),
    (["--model", "resnt18"], 1, "got 'resnt18'. Did you mean resnet18"),
    (["--model", "lenet5"], 1, "lenet5 needs images of at least 16 × 16, got 8 × 8."),
    (["--model", "alexnet"], 1, "alexnet does not accept images of 8 × 8:"),
    (["--set", "lrr=1"], 1, "A recipe has no 'lrr'. Did you mean lr? It has: model, epochs,"),
    (["--set", "lr=0.1", "--set", "lr=0.2"], 1, "lr is given twice; give it once."),
    (["--epochs", "2", "--set", "epochs=3"], 1, "epochs is given twice; give it once."),
    (["--set", "lr"], 1, "Expected name=value, such as lr=0.05, got 'lr'."),
    (["--set", "lr=1e30"], 1, "The loss of zetamix, seed 0, is not finite in epoch 1, step 2"),
    (["--data", "crescents", "--methods", "cutmix"], 1, "CutMix"),
    (["--data", "crescents", "--set", "augmentation=flip"], 1, "'flip' needs images"),
    (["--data", "helix12"], 1, "helix12 has no test split to report on."),
    (["--seeds", "a"], 2, "expected a number of seeds or a list such as 0,1,2, got 'a'"),
    (["--seeds", "1,1"], 2, "expected distinct, non-negative seeds, got '1,1'"),
    (["--seeds", "0"], 2, "expected at least 1 seed"),
    (["--train-size", "5"], 1, "size must lie between 10 (one of each class) and 1,257"),
    (["--train-size", "many"], 2, "Invalid value for --train-size"),
    (["--time-limit", "soon"], 2, "Expected a duration such as 9m, 1h30m or 45s, got 'soon'."),
    (["--device", "tpu"], 2, "expected cpu or cuda, got 'tpu'"),
    (["--log", "paper"], 1, "Expected tensorboard, wandb or mlflow, got 'paper'"),
    (["--jobs", "0"], 2, "Invalid value for '--jobs'"),
    (["--backend", "slurm"], 1, "backend must be one of local, ray, got 'slurm'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"), MISTAKES, ids=[" ".join(row[0]) for row in MISTAKES]
)
def test_mistakes_are_reported_in_a_sentence(zetamix, arguments, status, sentence):
    size = [] if "--train-size" in arguments or "--data" in arguments else ["--train-size", 100]
    text = zetamix(*size, *arguments, status=status)
    assert sentence in text.replace("│ ", "").replace(" │", "")
    assert "Traceback" not in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device to ask for")
def test_a_gpu_that_is_not_there(zetamix):
    text = zetamix("--device", "cuda", status=2)
    assert "torch finds no CUDA device; use cpu" in text


def test_a_file_in_the_place_of_the_folder(zetamix, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write to file: Not a directory" in zetamix(*SMALL, "--out", "file", status=2)


def test_out_of_memory_names_options_that_exist(zetamix, monkeypatch):
    def run_out(self, batch_size):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore.")

    monkeypatch.setattr(Trainer, "compute", run_out)
    text = zetamix(*SMALL, "--methods", "none,zeta:2.8", "--jobs", 1, status=1)
    # one failure for each run
    assert text.count("The GPU is out of memory.") == 2
    assert text.count("Tried to allocate 2 GiB.") == 2
    help_text = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).output
    for option in ("--jobs", "--set"):
        assert option in text
        assert option in help_text


def test_out_of_memory_behind_the_error_of_a_broken_capture(zetamix, monkeypatch):
    def run_out(self, batch_size):
        try:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(Trainer, "compute", run_out)
    assert "The GPU is out of memory." in zetamix(*SMALL, status=1)


def test_a_time_limit_counts_from_the_start_of_the_command(zetamix, tmp_path):
    text = zetamix(*SMALL, "--time-limit", "0.01s", "--out", "mine", status=75)
    assert "The time limit is reached. Everything is saved. Rerun the same command" in text
    assert not (tmp_path / "mine" / "record.json").exists()
    assert "1 of 1 runs finished" in zetamix(*SMALL, "--out", "mine")


def test_a_stopped_run_is_resumed_by_the_same_command(zetamix, tmp_path):
    options = ("--data", "crescents", "--epochs", 2000, "--methods", "none", "--out", "mine")
    text = zetamix(*options, "--time-limit", "3s", status=75)
    assert "no mixing seed 0 in epoch" in text
    before = len(list(read_lines(tmp_path / "mine" / "metrics.jsonl")))
    assert 0 < before < 2000
    assert (tmp_path / "mine" / "checkpoint.pt").exists()
    zetamix(*options, "--time-limit", "3s", status=75)
    lines = [line["epoch"] for line in read_lines(tmp_path / "mine" / "metrics.jsonl")]
    assert lines == list(range(1, len(lines) + 1))
    assert len(lines) > before


def test_tensorboard(zetamix, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    zetamix("--train-size", 100, "--epochs", 2, "--log", "tensorboard", "--out", "mine")
    events = EventAccumulator(str(tmp_path / "mine" / "tensorboard"))
    events.Reload()
    lines = list(read_lines(tmp_path / "mine" / "metrics.jsonl"))
    for name, expected in flatten(lines[1]).items():
        scalars = events.Scalars(name)
        assert [scalar.step for scalar in scalars] == [1, 2]
        assert scalars[1].value == pytest.approx(expected, rel=1e-6)


def test_json(zetamix, tmp_path):
    text = zetamix(*SMALL, "--out", "mine", "--json", "result.json")
    assert "digits: 100 training" in text
    (run,) = json.loads((tmp_path / "result.json").read_text())["runs"]
    assert run["last"] == json.loads((tmp_path / "mine" / "record.json").read_text())["last"]
    arguments = ["train", *SMALL, "--out", "mine", "--device", "cpu", "--json", "-"]
    result = CliRunner().invoke(app, arguments)
    assert json.loads(result.stdout)["runs"] == [run]
    assert "digits: 100 training" in result.stderr


def test_help_names_every_option():
    text = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).output
    for option in (
        "data", "methods", "model", "seeds", "epochs", "train-size", "set", "device", "jobs",
        "out", "backend", "address", "time-limit", "save-every", "compile", "log", "data-dir",
    ):  # fmt: skip
        assert f"--{option}" in text
