"""Time per step on a GPU and on a CPU, and how far the host runs ahead of the GPU."""

import time

import pytest
import torch

from zetamix_lab.train.run import CHUNKS_AHEAD, StepTimer


class FakeGPU:
    """A stream that needs a second for every chunk, and its events."""

    def __init__(self, monkeypatch):
        self.host = self.busy_until = 0.0
        """The clocks of the host and of the stream."""
        self.passed = 0.0
        """How far the device is known to have come."""
        self.waited = []
        monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: FakeEvent(self))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self)

    def launch(self, timer, chunks, steps=16):
        for _ in range(chunks):
            with timer.chunk(steps):
                self.busy_until = max(self.busy_until, self.host) + 1.0


class FakeEvent:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self, stream):
        assert stream is self.gpu
        self.at = max(self.gpu.busy_until, self.gpu.host)

    def query(self):
        return self.gpu.passed >= self.at

    def synchronize(self):
        self.gpu.waited.append(self.at)
        self.gpu.passed = max(self.gpu.passed, self.at)

    def elapsed_time(self, end):
        assert end.query(), "the time of an event is read before it was waited for"
        return 1000.0 * (end.at - self.at)


@pytest.fixture
def gpu(monkeypatch):
    return FakeGPU(monkeypatch)


@pytest.fixture
def timer(gpu):
    timer = StepTimer(torch.device("cuda"))
    timer.start()
    return timer


def test_the_host_waits_only_for_a_chunk_that_others_follow(gpu, timer):
    assert timer.is_done()
    gpu.launch(timer, CHUNKS_AHEAD)
    assert gpu.waited == []
    gpu.launch(timer, 3)
    assert gpu.waited == [1.0, 2.0, 3.0]
    assert not timer.is_done()
    gpu.passed = 5.0
    assert timer.is_done()
    timer.finish()
    assert gpu.waited == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("warm", "sharing", "idle", "steps", "seconds"),
    [
        # all but the first chunk of an epoch counts, and those of a warm epoch all
        (False, 1, 0.0, 2 * (2 * 16 + 7), 2 * 3),
        (True, 1, 0.0, 2 * (3 * 16 + 7), 2 * 4),
        # runs that share a GPU share its time
        (False, 4, 0.0, 2 * (2 * 16 + 7), 2 * 3 / 4),
        # the host may build, evaluate or save another run between two chunks of this one
        (False, 1, 60.0, 2 * (2 * 16 + 7), 2 * 3),
    ],
)
def test_every_chunk_is_counted_once(gpu, timer, warm, sharing, idle, steps, seconds):
    timer.sharing = sharing
    for _ in range(2):
        timer.start(warm=warm)
        for size in (16, 16, 16, 7):
            gpu.launch(timer, 1, steps=size)
            gpu.host += idle
        timer.finish()
    assert (timer.steps, timer.seconds) == (steps, pytest.approx(seconds))


def test_the_rest_of_a_stopped_epoch_is_discarded(gpu, timer):
    gpu.launch(timer, 1)
    timer.start()
    assert timer.is_done()
    gpu.launch(timer, 1)
    timer.finish()
    assert timer.steps == 0


def test_a_cpu_is_timed_by_the_host(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    timer = StepTimer(torch.device("cpu"))
    timer.sharing = 3
    timer.start()
    for seconds in (9.0, 0.25, 0.5):
        with timer.chunk(1):
            now[0] += seconds
        # other runs
        now[0] += 100
    assert (timer.steps, timer.seconds) == (2, 0.75)
    assert timer.is_done()
    timer.finish()
