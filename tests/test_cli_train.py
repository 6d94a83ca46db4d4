"""`zetamix train`: what a user types, sees, and is told."""

import io
import json
import re
import sys
import time
import types
import warnings
from pathlib import Path

import pytest
import torch
from folders import FINISHED, names
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from zetamix import data
from zetamix.cli import train as command
from zetamix.cli.app import app
from zetamix.cli.errors import told_in_a_sentence
from zetamix.cli.progress import Watcher
from zetamix.methods import parse
from zetamix.records import read_lines
from zetamix.train import RECIPES, Progress, Run
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
        "digits: 100 to train, 360 to test, 10 classes, 1 × 8 × 8 · digitnet, 1 epoch, batch 32, "
        "no augmentation · recipe: zetamix"
    )
    assert "val and test are split off train by us: stratified, 7:1:2, seed 0" in text
    assert f"torch {torch.__version__}" in text
    assert "zeta:2.8 seed 0: epoch 1/1, loss" in text
    folder = tmp_path / "runs" / "digits" / "zeta-2.8-s0"
    assert names(folder) == FINISHED
    record = json.loads((folder / "record.json").read_text())
    last, best = record["last"], record["best"]
    row = (
        f"zeta:2.8 0 {100 * last['error']:.2f} {100 * last['balanced_accuracy']:.2f} "
        f"{100 * last['f1_macro']:.2f} {last['auc']:.4f} {record['step_ms']:.2f} 0m"
    )
    assert row in text
    assert f"{100 * best['error']:.2f} best val: test error % of the epoch with the best" in text
    assert text.endswith("in runs/digits/zeta-2.8-s0")


def test_methods_and_seeds_each_have_a_folder(zetamix, tmp_path):
    text = zetamix(
        *SMALL, "--method", "none,zeta:gamma=2.4,sources=8", "--seed", "0,3", "--concurrent", 3,
        "--out", "all",
    )  # fmt: skip
    assert names(tmp_path / "all") == [
        "none-s0", "none-s3", "zeta-gamma=2.4,sources=8-s0", "zeta-gamma=2.4,sources=8-s3",
    ]  # fmt: skip
    for seed in (0, 3):
        record = json.loads((tmp_path / "all" / f"none-s{seed}" / "record.json").read_text())
        assert (record["cell"]["method"], record["cell"]["seed"]) == ("none", seed)
        assert record["extra"]["concurrent"] == 3
    assert text.count("epoch 1/1, loss") == 4


def test_a_folder_is_of_one_run_or_of_several(zetamix, tmp_path):
    zetamix(*SMALL, "--method", "none,zeta:2.8", "--out", "all")
    stamp = (tmp_path / "all" / "none-s0" / "record.json").stat().st_mtime_ns
    # a single one of them again: found where it is, and not trained into the folder of all
    zetamix(*SMALL, "--method", "none", "--out", "all")
    assert names(tmp_path / "all") == ["none-s0", "zeta-2.8-s0"]
    assert (tmp_path / "all" / "none-s0" / "record.json").stat().st_mtime_ns == stamp
    zetamix(*SMALL, "--method", "none", "--out", "one")
    text = zetamix(*SMALL, "--method", "none,zeta:2.8", "--out", "one", status=2)
    assert "one is the folder of a single run; choose another for several" in text.replace("│ ", "")


def test_one_run_takes_the_folder_it_is_given(zetamix, tmp_path):
    zetamix(*SMALL, "--method", "none", "--out", "mine")
    assert "record.json" in names(tmp_path / "mine")


def test_a_finished_run_is_shown_again_and_not_trained(zetamix, monkeypatch):
    first = zetamix(*SMALL, "--out", "mine")
    monkeypatch.setattr(Trainer, "step", None)
    again = zetamix(*SMALL, "--out", "mine")
    assert again.split("zeta:2.8 0 ")[1] == first.split("zeta:2.8 0 ")[1]
    assert "epoch 1/1" not in again
    assert "1 of 1 run finished earlier: shown as recorded" in again


def test_a_folder_in_use_is_told_before_what_is_in_it(zetamix):
    """An unfinished run may be one that another process trains right now."""
    zetamix(*SMALL, "--out", "mine", "--time-limit", "0s")
    assert "Add --resume to go on" in zetamix(*SMALL, "--out", "mine", status=1)
    with hold([Path("mine")]):
        text = zetamix(*SMALL, "--out", "mine", status=1)
    assert text == "mine is in use by another process. Wait for it, or end it."


def test_images_of_another_size(zetamix, tmp_path):
    generator = torch.Generator().manual_seed(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(10):
            pixels = torch.randint(256, (40, 40, 3), generator=generator, dtype=torch.uint8)
            path = tmp_path / "photos" / name / f"{number}.png"
            Image.fromarray(pixels.numpy()).save(path)
    how = ("--data", "photos", "--epochs", 1, "--set", "model=digitnet", "--method", "none")
    assert "2 classes, 3 × 16 × 16 ·" in zetamix(*how, "--size", 16, "--out", "small")
    assert "2 classes, 3 × 40 × 40 ·" in zetamix(*how, "--out", "large")


def test_a_warning_is_a_sentence_too(zetamix):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        text = zetamix(*SMALL, "--method", "zeta:1.0", "--out", "mine")
    assert "gamma=1 is below 1.72865, the threshold for any number of sources" in text
    assert ".py" not in text


def test_a_run_of_other_settings_is_told(zetamix):
    zetamix(*SMALL, "--out", "mine")
    text = zetamix(*SMALL, "--out", "mine", "--set", "lr=0.5", status=1)
    assert text == (
        "mine holds another run (recipe.lr: 0.025 there, 0.5 asked for). Choose another --out."
    )


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
    text = zetamix("--data", "crescents", "--epochs", 1, "--method", "none")
    assert "crescents: 512 to train, 512 to test, 2 classes, 2 numbers each · mlp" in text
    # without a validation split there is no best epoch to show
    assert "best val" not in text


@pytest.mark.parametrize("columns", [80, 100])
def test_numbers_are_never_cut_off(zetamix, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = zetamix(*SMALL, "--method", "zeta:gamma=2.4,sources=4,anchor=random")
    assert "…" not in text


def test_a_long_name_is_folded_between_its_options(zetamix, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = zetamix(*SMALL, "--method", "zeta:gamma=2.0..4.0,sources=8")
    # below the line with the numbers, which the first part of the name stands in
    assert re.search(r" zeta: 0 \d.* gamma=2\.0\.\.4\.0, sources=8 best val", text)


# what a user types, and the sentence that comes back
MISTAKES = [
    (["--method", "zetta"], 1, "got 'zetta'. Did you mean zeta?"),
    (["--method", "zeta:sources=1"], 1, "sources must be at least 2, got 1."),
    (["--data", "cifr10"], 1, "cifar10"),
    (["--model", "resnt18"], 1, "got 'resnt18'. Did you mean resnet18"),
    (["--model", "lenet5"], 1, "lenet5 needs images of at least 16 × 16, got 8 × 8."),
    (["--model", "alexnet"], 1, "alexnet cannot take images of 8 × 8:"),
    (["--set", "lrr=1"], 1, "A recipe has no 'lrr'. Did you mean lr? It has: model, epochs,"),
    (["--set", "lr=0.1", "--set", "lr=0.2"], 1, "lr is given twice; give it once."),
    (["--epochs", "2", "--set", "epochs=3"], 1, "epochs is given twice; give it once."),
    (["--set", "lr"], 1, "Expected name=value, such as lr=0.05, got 'lr'."),
    (["--set", "lr=1e30"], 1, "The loss of zeta:2.8, seed 0, is not finite in epoch 1, step 2"),
    (["--data", "crescents", "--method", "cutmix"], 1, "CutMix cuts boxes out of images"),
    (["--data", "crescents", "--set", "augmentation=flip"], 1, "flip is for images"),
    (["--data", "helix12"], 1, "helix12 has no test split to report on."),
    (["--seed", "a"], 2, "expected whole numbers separated by commas, got 'a'"),
    (["--seed", "1,1"], 2, "expected different numbers of at least 0, got '1,1'"),
    (["--seed=-1"], 2, "expected different numbers of at least 0, got '-1'"),
    (["--train-size", "5"], 2, "size must lie between 10 (one of each class) and 1,257"),
    (["--train-size", "many"], 2, "Invalid value for --train-size"),
    (["--time-limit", "soon"], 2, "Expected a duration such as 9m, 1h30m or 45s, got 'soon'."),
    (["--device", "tpu"], 2, "expected cpu or cuda, got 'tpu'"),
    (["--log", "paper"], 2, "expected tensorboard or wandb, got 'paper'"),
    (["--concurrent", "0"], 2, "Invalid value for '--concurrent'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"), MISTAKES, ids=[" ".join(row[0]) for row in MISTAKES]
)
def test_mistakes_are_told_in_a_sentence(zetamix, arguments, status, sentence):
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
    assert zetamix(*SMALL, "--out", "file", status=1).endswith("Cannot use file: File exists.")


def test_a_full_gpu_is_told_with_the_knobs_to_turn(zetamix, monkeypatch):
    def run_out(self, batch_size):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore.")

    monkeypatch.setattr(Trainer, "compute", run_out)
    text = zetamix(*SMALL, status=1)
    assert text.endswith(
        "The GPU is out of memory. Train fewer runs side by side (--concurrent), or smaller "
        "batches (--set batch_size=...). torch says: CUDA out of memory. Tried to allocate 2 GiB."
    )


def test_a_full_gpu_is_found_behind_the_error_of_a_broken_capture(zetamix, monkeypatch):
    def run_out(self, batch_size):
        try:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(Trainer, "compute", run_out)
    assert "The GPU is out of memory." in zetamix(*SMALL, status=1)


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken("a bug"), KeyError("a bug"), OSError("a bug")])
def test_bugs_are_not_hidden(error):
    with pytest.raises(type(error), match="a bug"), told_in_a_sentence():
        raise error


def test_a_value_error_of_others_is_a_bug():
    with pytest.raises(ValueError, match="invalid literal"), told_in_a_sentence():
        int("x")


@pytest.mark.parametrize("what", ["make_stop", "_load"])
def test_time_before_the_training_counts(zetamix, monkeypatch, what):
    """A limit that is used up by what comes before the training: one step, then it stops."""
    real, clock, late = getattr(command, what), time.monotonic, [0.0]

    def slow(*arguments):
        late[0] = 100.0
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(f"zetamix.cli.train.{what}", slow)
        patch.setattr(time, "monotonic", lambda: clock() + late[0])
        text = zetamix(*SMALL, "--time-limit", "90s", "--out", "mine")
    assert (
        "zeta:2.8 seed 0 in epoch 1 of 1 The time is up. Everything is saved; the same command "
        "with --resume goes on." in text
    )
    assert "unfinished run of this. Add --resume" in zetamix(*SMALL, "--out", "mine", status=1)


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


def test_weights_and_biases(zetamix, monkeypatch, tmp_path):
    logged = []

    class Session:
        def __init__(self, **how):
            logged.append(how)

        def log(self, values, step):
            logged.append((step, values))

        def finish(self):
            logged.append("finished")

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=Session))
    zetamix(*SMALL, "--log", "wandb", "--out", "mine")
    begun, (step, values), end = logged
    cell = json.loads((tmp_path / "mine" / "cell.json").read_text())
    assert begun["id"] == cell["key"]
    assert (begun["config"]["method"], begun["config"]["lr"]) == ("zeta:2.8", 0.025)
    (line,) = read_lines(tmp_path / "mine" / "metrics.jsonl")
    assert (step, values) == (1, dict(flatten(line)))
    assert values["test/error"] == line["test"]["error"]
    assert end == "finished"


@pytest.mark.parametrize("name", ["wandb", "tensorboard"])
def test_a_logger_that_is_not_installed(zetamix, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    text = zetamix(*SMALL, "--log", name, status=2)
    assert f"{name} is not installed; pip install {name}" in text.replace("│ ", "")


@pytest.fixture
def run(root, tmp_path):
    recipe = RECIPES["cifar10"].change(model="digitnet", epochs=20, batch_size=32)
    dataset = data.load("digits", data_dir=root)
    return Run(dataset, parse("zeta"), recipe, seed=1, out=tmp_path / "run")


LINE = {
    "epoch": 1, "train_loss": 1.25, "train_accuracy": 0.5, "seconds": 7.0,
    "test": {"error": 0.25, "accuracy": 0.75},
}  # fmt: skip


def watch(run, words, monkeypatch, **how):
    """What a watcher writes about these words, said a second apart."""
    now = [0.0]
    monkeypatch.setattr("zetamix.cli.progress.time.monotonic", lambda: now[0])
    screen = io.StringIO()
    with Watcher(Console(file=screen, width=120, **how), [run]) as watcher:
        for word in words:
            watcher(Progress(run, **word))
            now[0] += 1
    return screen.getvalue()


def test_a_terminal_shows_epoch_loss_accuracy_speed_and_time_left(run, monkeypatch):
    words = [
        {"epoch": 0, "step": 1, "steps": 39},
        {"epoch": 0, "step": 39, "steps": 39},
        {"epoch": 1, "step": 0, "steps": 39, "line": LINE},
        {"epoch": 1, "step": 20, "steps": 39},
    ]
    text = watch(run, words, monkeypatch, force_terminal=True)
    # 58 steps of 32 images in the three seconds since the first word
    assert "epoch 2/20 · loss 1.250 · train 50.0 % · test 75.00 % ·" in text
    assert "zeta:2.8 seed 1" in text
    speed = 58 * 32 / 3
    assert f"{speed:,.0f} images/s" in text
    # rich writes the time left as minutes and seconds
    assert ":" in text.rsplit("images/s", 1)[1]


def test_elsewhere_a_run_prints_ten_lines(run, monkeypatch):
    words = [
        {"epoch": epoch, "step": 0, "steps": 39, "line": {**LINE, "epoch": epoch}}
        for epoch in range(1, 21)
    ]
    lines = watch(run, words, monkeypatch).splitlines()
    assert len(lines) == 10
    assert lines[0] == "zeta:2.8 seed 1: epoch 2/20, loss 1.250, test error 25.00 %, 7 s"
    assert lines[-1].startswith("zeta:2.8 seed 1: epoch 20/20,")


def test_help_names_every_option():
    text = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).output
    for option in (
        "data", "method", "model", "seed", "epochs", "train-size", "set", "device", "concurrent",
        "out", "resume", "time-limit", "save-every", "compile", "log", "data-dir",
    ):  # fmt: skip
        assert f"--{option}" in text
