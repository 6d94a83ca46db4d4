"""The step as a CUDA graph: a replay is a step, and a run with graphs resumes exactly.

On a CPU the same tests run with a fake graph, which records the captured step and calls it at a
replay, so that what the host does around a graph is tested everywhere.
"""

import contextlib
from unittest import mock

import pytest
import torch
from factories import METHODS, RECIPE, STEPS, Runs, dropout_model, finish, resume, weights

import zetamix.sampling
from zetamix.methods import parse
from zetamix_lab.train import run as run_module
from zetamix_lab.train import train
from zetamix_lab.train import trainer as trainer_module
from zetamix_lab.train.cuda_graph import capture
from zetamix_lab.train.trainer import Trainer

RECIPE = RECIPE.change(
    epochs=3, milestones=(1, 2), decay=0.5, augmentation="crop-flip", precision="float32"
)
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)
ON_GPU = pytest.mark.parametrize("device", [CUDA], indirect=True)
# torch's compiler warns about its own parts, and about TF32, which the recipe leaves off
COMPILES = pytest.mark.filterwarnings("default")


class FakeGraph:
    """Records the calls that are captured; a replay makes them."""

    register_generator_state = mock.Mock()

    def __init__(self):
        self.calls = []

    def replay(self):
        for call in self.calls:
            call()


def fake_cuda_graphs(monkeypatch):
    capturing = []

    @contextlib.contextmanager
    def capture(graph, **options):
        capturing.append(graph)
        yield
        capturing.pop()

    compute = Trainer.compute

    def capture_or_compute(self, batch_size):
        if capturing:
            capturing[-1].calls.append(lambda: compute(self, batch_size))
        else:
            compute(self, batch_size)

    monkeypatch.setattr(Trainer, "compute", capture_or_compute)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: mock.Mock())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: mock.Mock())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(run_module, "can_capture", lambda *_: True)


@pytest.fixture(params=["fake", CUDA])
def device(request, monkeypatch):
    if request.param == "fake":
        fake_cuda_graphs(monkeypatch)
        return torch.device("cpu")
    # an eager step draws small random numbers on the host, a captured one on the device; here both
    # draw on the device, so that they are the same
    monkeypatch.setattr(zetamix.sampling, "reads_generator_on_host", lambda device: False)
    # without it the gradient of a convolution is summed in another order each time, and after nine
    # steps some weights differ by more than 1e-4
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    return torch.device("cuda")


@pytest.fixture
def new(digits, device, tmp_path):
    return Runs(digits, tmp_path, RECIPE, device=device)


def assert_same_state(found, expected, device):
    """Bit by bit on a CPU; a GPU sometimes sums in another order."""
    tolerance = 0 if device.type == "cpu" else 1e-4
    found, expected = ({k: v.cpu() for k, v in state.items()} for state in (found, expected))
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def assert_same(first, second, device):
    assert_same_state(weights(first.folder.path), weights(second.folder.path), device)
    for one, two in zip(first.folder.read_curve(), second.folder.read_curve(), strict=True):
        for name in ("lr", "train_loss"):
            assert one[name] == pytest.approx(two[name], rel=1e-3)
        # on a GPU the prediction of one of 96 samples may change
        tolerance = 0 if device.type == "cpu" else 0.011
        assert one["train_accuracy"] == pytest.approx(two["train_accuracy"], abs=tolerance)
    assert first.record.last["nll"] == pytest.approx(second.record.last["nll"], rel=1e-2)


@pytest.fixture
def captures(monkeypatch):
    """A mock that captures steps."""
    captures = mock.Mock(wraps=capture)
    monkeypatch.setattr(run_module, "capture", captures)
    return captures


ADAMW = RECIPE.change(optimizer="adamw", lr=0.01, weight_decay=0.1, warmup=1, schedule="cosine")
CASES = [
    *((method, RECIPE, 1) for method in METHODS),
    ("dropout", RECIPE, 1),
    # a capture leaves no trace in moments and step counts; a rate per step reaches the graph
    ("zeta", ADAMW, 1),
    # where mixing ends, the step is captured again
    ("zeta:gamma=2.8,until=0.67", RECIPE, 2),
]


@pytest.mark.parametrize(("method", "recipe", "count"), CASES, ids=[row[0] for row in CASES])
def test_a_run_with_a_graph_is_a_run(new, device, captures, monkeypatch, method, recipe, count):
    """Through three epochs with three rates; a capture changes nothing itself."""
    if method == "dropout":
        method = "none"
        monkeypatch.setattr(trainer_module, "initialise", dropout_model)
    run = new(method, recipe)
    assert finish(run).extra["graph"] is True
    assert captures.call_count == count
    torch.rand(3, device=device)
    stopped = resume(new, method, recipe, rounds=2)
    monkeypatch.setattr(run_module, "can_capture", lambda *_: False)
    eager = new(method, recipe)
    assert finish(eager).extra["graph"] is False
    assert_same(run, eager, device)
    assert_same(stopped, eager, device)


@pytest.mark.parametrize("chunk", [2, 25])
@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("memory", [None, 0], ids=["held", "streamed"])
def test_a_stopped_run_resumes(new, device, monkeypatch, rounds, chunk, memory):
    """Also right after the last step of an epoch, of which nothing remains to capture."""
    monkeypatch.setattr(run_module, "CHUNK_STEPS", chunk)
    whole = new("mixup")
    finish(whole)
    last = resume(new, "mixup", rounds=rounds, data_memory=memory)
    assert_same(last, whole, device)


def test_a_stop_saves_every_step_that_was_launched(new, device):
    """The host runs ahead of a GPU; the checkpoint holds the state after the steps it counts."""
    run = new(recipe=RECIPE.change(batch_size=4))
    train([run], stop=lambda: True)
    path = run.folder.path / "checkpoint.pt"
    saved = torch.load(path, weights_only=True, map_location="cpu")["trainer"]
    assert saved["step_in_epoch"] == 16
    if device.type == "cuda":
        torch.cuda.synchronize()
    assert_same_state(saved["model"], run.trainer.model.state_dict(), torch.device("cpu"))
    metrics = saved["step_metrics"]
    assert torch.equal(metrics, run.trainer.step_metrics.cpu())
    assert (metrics[0, :16] > 0).all()


@pytest.mark.slow
def test_side_by_side_is_as_alone(new, device, captures):
    alone, together = ([new(method) for method in METHODS] for _ in range(2))
    for run in alone:
        finish(run)
    train(together, jobs=3)
    assert captures.call_count == 2 * len(METHODS)
    for one, other in zip(alone, together, strict=True):
        assert_same(other, one, device)


@COMPILES
@ON_GPU
@pytest.mark.parametrize("method", ["none", "zeta:2.8"])
def test_a_compiled_step_trains_as_well(new, device, method):
    """Sums in another order, so as good, but not bit by bit."""
    recipe = RECIPE.change(epochs=8, precision="auto", augmentation="none")
    plain, compiled = new(method, recipe), new(method, recipe, compile=True)
    train([plain, compiled])
    differ = {"temperature": None}
    expected = {**plain.record.extra, "compiled": True}
    assert compiled.record.extra | differ == expected | differ
    assert compiled.record.last["nll"] == pytest.approx(plain.record.last["nll"], abs=0.15)
    assert compiled.record.last["error"] < 0.25
    train([new(method, recipe, compile=True, out="part")], stop=lambda: True)
    last = finish(new(method, recipe, compile=True, out="part"))
    assert last.last["nll"] == pytest.approx(compiled.record.last["nll"], abs=0.15)


@COMPILES
@ON_GPU
def test_the_first_compiled_steps_are_those_of_an_eager_trainer(digits, device):
    plain, compiled = (
        Trainer(digits, parse("none"), RECIPE, device=device, compile=compile)
        for compile in (False, True)
    )
    for trainer in (plain, compiled):
        trainer.start_epoch()
    capture(compiled)
    for _ in range(3):
        plain.step()
        with torch.cuda.stream(compiled.stream):
            compiled.step()
        compiled.stream.synchronize()
    found, expected = (trainer.step_metrics[:, :3] for trainer in (compiled, plain))
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


@ON_GPU
def test_an_epoch_never_waits_for_the_device(digits, device):
    trainer = Trainer(digits, parse("zeta"), RECIPE, device=device)
    trainer.start_epoch()
    capture(trainer)
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        with torch.cuda.stream(trainer.stream):
            for _ in range(STEPS):
                trainer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
