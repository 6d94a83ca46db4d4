"""The step as a CUDA graph: a replay is a step, and a run with graphs resumes exactly.

On a CPU the same tests run with a fake graph, which records the captured step and calls it at a
replay, so that what the host does around a graph is tested everywhere.
"""

import contextlib
from dataclasses import replace

import pytest
import torch
from folders import weights
from torch import nn

import zetamix.sampling
from zetamix import data
from zetamix.methods import parse
from zetamix.train import RECIPES, Run, train
from zetamix.train import run as runs_module
from zetamix.train import trainer as trainer_module
from zetamix.train.cuda_graph import CapturedStep
from zetamix.train.trainer import Trainer

RECIPE = RECIPES["cifar10"].change(
    model="digitnet", epochs=3, batch_size=32, lr=0.05, milestones=(1, 2), decay=0.5,
    augmentation="crop-flip", precision="float32",
)  # fmt: skip
STEPS = 3
METHODS = ["none", "mixup", "cutmix", "zeta:2.8", "local"]
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)
ON_GPU = pytest.mark.parametrize("device", [CUDA], indirect=True)
# torch's compiler warns about its own parts, and about TF32, which the recipe leaves off
COMPILES = pytest.mark.filterwarnings("default")


class FakeGraph:
    """Records the calls that are captured; a replay makes them."""

    def __init__(self):
        self.calls = []

    def register_generator_state(self, generator):
        self.generator = generator

    def replay(self):
        for call in self.calls:
            call()


class FakeStream:
    def __init__(self, device):
        self.device = device

    def wait_stream(self, other):
        pass

    def synchronize(self):
        pass


def fake_cuda_graphs(monkeypatch):
    """CUDA graphs without CUDA."""
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
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "current_stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(
        runs_module, "can_capture", lambda device, recipe, *_: recipe.last_batch == "drop"
    )


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


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    whole = data.load("digits", data_dir=tmp_path_factory.mktemp("data"))
    return replace(
        whole, train=whole.train.subset(100), val=whole.val.subset(40), test=whole.test.subset(50)
    )


@pytest.fixture
def new(digits, device, tmp_path):
    made = []

    def make(method="zeta:2.8", recipe=RECIPE, *, out=None, seed=0, **options):
        made.append(out)
        out = tmp_path / (f"run{len(made)}" if out is None else out)
        return Run(digits, parse(method), recipe, seed=seed, out=out, device=device, **options)

    return make


def assert_same_state(found, expected, device, tolerance=1e-4):
    """Bit by bit on a CPU; a GPU sometimes sums in another order."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if device.type == "cpu":
            assert torch.equal(found[key], value), key
        else:
            torch.testing.assert_close(
                found[key].cpu(), value.cpu(), rtol=tolerance, atol=tolerance, msg=key
            )


def assert_same(first, second, device, tolerance=1e-4):
    assert_same_state(weights(first.folder.path), weights(second.folder.path), device, tolerance)
    assert first.record.last["nll"] == pytest.approx(second.record.last["nll"], rel=1e-2)


def eager(new, *arguments, **options):
    run = new(*arguments, graph=False, **options)
    train([run])
    return run


@pytest.fixture
def captures(monkeypatch):
    """All captured steps, in order."""
    made = []

    class Counted(CapturedStep):
        def __init__(self, trainer):
            made.append(self)
            super().__init__(trainer)

    monkeypatch.setattr(runs_module, "CapturedStep", Counted)
    return made


@pytest.mark.parametrize("method", METHODS)
def test_a_replay_is_a_step(digits, device, method):
    """Step by step through three epochs with three rates, from one capture."""
    plain = Trainer(digits, parse(method), RECIPE, device=device)
    other = Trainer(digits, parse(method), RECIPE, device=device)
    captured = None
    for epoch in range(RECIPE.epochs):
        plain.start_epoch()
        with contextlib.nullcontext() if captured is None else torch.cuda.stream(captured.stream):
            other.start_epoch()
        if captured is None:
            captured = CapturedStep(other)
        for step in range(STEPS):
            plain.step()
            with torch.cuda.stream(captured.stream):
                captured()
            captured.stream.synchronize()
            assert (plain.step_in_epoch, other.step_in_epoch) == (step + 1, step + 1)
            assert int(other.index) == step + 1
            loss, found = plain.step_metrics[0, step], other.step_metrics[0, step]
            assert float(found) == pytest.approx(float(loss), rel=1e-3), (epoch, step)
        assert_same_state(other.model.state_dict(), plain.model.state_dict(), device)
        assert plain.finish_epoch() == pytest.approx(other.finish_epoch(), rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_by_graph_is_a_run(new, device, captures, method):
    run = new(method)
    (record,) = train([run]).records
    assert record.extra["graph"] is True
    assert_same(run, eager(new, method), device)
    assert len(captures) == 1


def test_capturing_changes_nothing(digits, device):
    trainer = Trainer(digits, parse("zeta"), RECIPE, device=device)
    trainer.start_epoch()
    for _ in range(2):
        trainer.step()
    before = {
        "model": {key: value.clone() for key, value in trainer.model.state_dict().items()},
        "momentum": [s["momentum_buffer"].clone() for s in trainer.optimizer.state.values()],
        "generator": trainer.generator.get_state(),
        "step_metrics": trainer.step_metrics.clone(),
        "index": trainer.index.clone(),
    }
    CapturedStep(trainer)
    assert_same_state(trainer.model.state_dict(), before["model"], torch.device("cpu"))
    momentum = [state["momentum_buffer"] for state in trainer.optimizer.state.values()]
    for found, expected in zip(momentum, before["momentum"], strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(trainer.generator.get_state(), before["generator"])
    assert torch.equal(trainer.step_metrics, before["step_metrics"])
    assert torch.equal(trainer.index, before["index"])
    assert trainer.step_in_epoch == 2


@pytest.mark.parametrize("chunk", [2, 25])
@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("memory", [None, 0], ids=["held", "streamed"])
def test_a_stopped_run_resumes(new, device, rounds, chunk, memory):
    """Also right after the last step of an epoch, of which nothing remains to capture."""
    whole = new("mixup")
    train([whole])
    options = {"out": "part", "chunk_steps": chunk, "data_memory": memory}
    calls = iter(range(100))
    assert train([new("mixup", **options)], stop=lambda: next(calls) == rounds - 1).records == []
    last = new("mixup", **options)
    train([last])
    assert_same(last, whole, device)


def test_a_stop_saves_every_step_that_was_launched(new, device):
    """The host runs ahead of a GPU; the checkpoint holds the state after the steps it counts."""
    run = new(recipe=RECIPE.change(batch_size=4), chunk_steps=16)
    train([run], stop=lambda: True)
    saved = torch.load(run.folder.path / "checkpoint.pt", weights_only=True, map_location="cpu")
    assert saved["trainer"]["step_in_epoch"] == 16
    if device.type == "cuda":
        torch.cuda.synchronize()
    state = {key: value.cpu() for key, value in run.trainer.model.state_dict().items()}
    assert_same_state(saved["trainer"]["model"], state, torch.device("cpu"))
    (tally,) = saved["trainer"]["step_metrics"]
    assert torch.equal(tally, run.trainer.step_metrics.cpu())
    assert (tally[0, : runs_module.CHUNK_STEPS] > 0).all()


def test_side_by_side_is_as_alone(new, device, captures):
    methods = ["none", "cutmix", "zeta:2.8", "local"]
    alone = [new(method) for method in methods]
    for run in alone:
        train([run])
    together = [new(method) for method in methods]
    train(together, jobs=3)
    assert len(captures) == 2 * len(methods)
    for one, other in zip(alone, together, strict=True):
        assert_same(other, one, device)


def test_a_smaller_last_batch_is_not_captured(new, device, captures):
    run = new("zeta", RECIPE.change(last_batch="keep"))
    (record,) = train([run]).records
    assert record.extra["graph"] is False
    assert captures == []


def test_dropout_draws_the_same_in_a_graph(new, device, monkeypatch):
    def build(name, num_classes, shape, seed, **options):
        generator = torch.Generator().manual_seed(seed)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 10))
        for part in model.parameters():
            part.data = torch.randn(part.shape, generator=generator) * 0.1
        return model

    monkeypatch.setattr(trainer_module, "initialise", build)
    run = new("none")
    train([run])
    torch.rand(3, device=device)
    assert_same(run, eager(new, "none"), device)


@COMPILES
@ON_GPU
@pytest.mark.parametrize("method", ["none", "zeta:2.8"])
def test_a_compiled_step_trains_as_well(new, device, method):
    """Sums in another order, so as good, but not bit by bit."""
    recipe = RECIPE.change(epochs=8, precision="auto", augmentation="none")
    plain, compiled = new(method, recipe), new(method, recipe, compile=True)
    train([plain, compiled])
    assert compiled.record.extra == {**plain.record.extra, "compiled": True}
    assert compiled.record.last["nll"] == pytest.approx(plain.record.last["nll"], abs=0.15)
    assert compiled.record.last["error"] < 0.25
    stopped = new(method, recipe, compile=True, out="part")
    train([stopped], stop=lambda: True)
    last = new(method, recipe, compile=True, out="part")
    train([last])
    assert last.record.last["nll"] == pytest.approx(compiled.record.last["nll"], abs=0.15)


@COMPILES
@ON_GPU
def test_the_first_compiled_steps_are_those_of_an_eager_trainer(digits, device):
    plain, compiled = (
        Trainer(digits, parse("none"), RECIPE, device=device, compile=compile)
        for compile in (False, True)
    )
    for trainer in (plain, compiled):
        trainer.start_epoch()
    captured = CapturedStep(compiled)
    for _ in range(3):
        plain.step()
        with torch.cuda.stream(captured.stream):
            captured()
        captured.stream.synchronize()
    torch.testing.assert_close(
        compiled.step_metrics[:, :3], plain.step_metrics[:, :3], rtol=1e-2, atol=1e-2
    )


@ON_GPU
def test_an_epoch_never_waits_for_the_device(digits, device):
    trainer = Trainer(digits, parse("zeta"), RECIPE, device=device)
    trainer.start_epoch()
    captured = CapturedStep(trainer)
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        with torch.cuda.stream(captured.stream):
            for _ in range(STEPS):
                captured()
    finally:
        torch.cuda.set_sync_debug_mode("default")
