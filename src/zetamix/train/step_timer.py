"""Time per training step, and how far the host may run ahead of the GPU."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# chunks of steps in flight beyond the one that is waited for. With one, models side by side would
# have nothing queued while the host launches the steps of the others, 0.2 to 0.4 ms each; three
# chunks are 48 steps, and an H200 queues 53 to 55 captured steps before a launch blocks the host
CHUNKS_AHEAD = 2


class BusyTime:
    """The time in which steps of at least one of several runs were under way on a device."""

    def __init__(self) -> None:
        self.intervals: list[tuple[float, float]] = []
        """Begin and end of chunks of steps, in seconds after any moment that all share."""
        self._origin: Any = None

    def add_events(self, begin: Any, end: Any) -> None:
        """A chunk between two CUDA events, which may be on a stream of their own."""
        self._origin = begin if self._origin is None else self._origin
        first = self._origin.elapsed_time(begin) / 1000
        self.intervals.append((first, first + begin.elapsed_time(end) / 1000))

    @property
    def seconds(self) -> float:
        """The length of the union of all intervals.

        >>> busy = BusyTime()
        >>> busy.intervals = [(5.0, 6.0), (0.0, 2.0), (1.0, 3.0)]
        >>> busy.seconds
        4.0
        """
        total, reached = 0.0, float("-inf")
        for begin, end in sorted(self.intervals):
            total += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return total


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
        """Runs that share the device; each is charged an equal part of its time."""
        self.busy = BusyTime()
        """Of all runs that share the device, once it is replaced by theirs."""
        # steps, whether they are timed, and the events around them
        self._in_flight: deque[tuple[int, bool, Any, Any]] = deque()
        self._warm = False

    def start(self, *, warm: bool = False) -> None:
        """Begin an epoch; its first chunk, which waits for draws or a capture, is not timed.

        warm: time it nevertheless, where an epoch has no other.
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
            ended = time.perf_counter()
            self.busy.intervals.append((began, ended))
            if self._warm:
                self.steps += steps
                self.seconds += ended - began
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
        self.busy.add_events(begin, end)
        if timed:
            self.steps += steps
            self.seconds += begin.elapsed_time(end) / 1000 / self.sharing

    def _event(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event
