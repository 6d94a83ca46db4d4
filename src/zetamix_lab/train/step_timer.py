"""Time per training step, and how far the host may run ahead of the GPU."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# chunks of steps queued in addition to the one that is waited for. With one, concurrent models
# would have nothing queued while the host launches steps of the others, 0.2 to 0.4 ms each; three
# chunks are 48 steps, and an H200 queues 53 to 55 captured steps before a launch blocks the host
CHUNKS_AHEAD = 2


class StepTimer:
    """Counts training steps and their seconds, without evaluation, saving or idle time.

    On a GPU, CUDA events around each chunk of steps are read later, so the host need not wait for
    the current chunk.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.steps = 0
        self.seconds = 0.0
        self.sharing = 1
        """Runs that share the device; each counts an equal part of its time."""
        self.busy = 0.0
        """Seconds of all steps of this process, including untimed chunks."""
        # steps, whether they are timed, and the events around them
        self._in_flight: deque[tuple[int, bool, Any, Any]] = deque()
        self._warm = False

    def start(self, *, warm: bool = False) -> None:
        """Begin an epoch; its first chunk, which includes random draws or a capture, is not timed.

        warm: time the first chunk as well, for epochs of one chunk.
        """
        self._in_flight.clear()
        self._warm = warm

    @contextmanager
    def chunk(self, steps: int) -> Iterator[None]:
        """Time the launch of some steps, on their stream."""
        on_gpu = self.device.type == "cuda"
        began = self._event() if on_gpu else time.perf_counter()
        yield
        if on_gpu:
            self._in_flight.append((steps, self._warm, began, self._event()))
            if len(self._in_flight) > CHUNKS_AHEAD:
                self._wait()
        else:
            self._add(steps, self._warm, time.perf_counter() - began)
        self._warm = True

    def is_done(self) -> bool:
        """Whether all launched steps are done."""
        return not self._in_flight or bool(self._in_flight[-1][-1].query())

    def finish(self) -> None:
        """Wait until all launched steps are done."""
        while self._in_flight:
            self._wait()

    def _wait(self) -> None:
        steps, timed, begin, end = self._in_flight.popleft()
        end.synchronize()
        self._add(steps, timed, begin.elapsed_time(end) / 1000 / self.sharing)

    def _add(self, steps: int, timed: bool, seconds: float) -> None:
        self.busy += seconds
        if timed:
            self.steps += steps
            self.seconds += seconds

    def _event(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event
