"""What training steps cost, and how far the host may run ahead of the GPU that takes them."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# steps that are launched in one go
CHUNK_STEPS = 16
# chunks that may be under way beyond the one that is waited for: with one, models side by side
# would have nothing queued while the host launches their neighbours' steps, 0.2 to 0.4 ms each;
# three chunks are 48 steps, and an H200 was seen to take 53 to 55 captured ones in advance before
# a launch makes the host wait
CHUNKS_AHEAD = 2


class StepClock:
    """Counts steps and their seconds, and nothing of what is done between them.

    A GPU's time is read off events around each chunk, so the host need not wait for the last one,
    and a stream that stands idle while the host is busy elsewhere is charged nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.steps = 0
        self.seconds = 0.0
        self.turns = 1
        """How many runs share the device; each is charged its part of the time."""
        # steps, whether they are timed, and the events around them
        self._under_way: deque[tuple[int, bool, torch.cuda.Event, torch.cuda.Event]] = deque()
        self._begun = False

    def start(self) -> None:
        """Before the steps of an epoch, the first of which wait for its draws or for a capture."""
        self._under_way.clear()
        self._begun = False

    @contextmanager
    def chunk(self, steps: int) -> Iterator[None]:
        """Around the launch of some steps, on their stream."""
        if self.device.type == "cuda":
            begin = self._mark()
            yield
            self._under_way.append((steps, self._begun, begin, self._mark()))
            if len(self._under_way) > CHUNKS_AHEAD:
                self._wait()
        else:
            began = time.perf_counter()
            yield
            if self._begun:
                self._count(steps, time.perf_counter() - began)
        self._begun = True

    def is_done(self) -> bool:
        """Whether every step that was launched has been taken."""
        if not self._under_way:
            return True
        *_, end = self._under_way[-1]
        return bool(end.query())  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        """Wait until every step that was launched has been taken."""
        while self._under_way:
            self._wait()

    def _wait(self) -> None:
        steps, timed, begin, end = self._under_way.popleft()
        end.synchronize()
        if timed:
            self._count(steps, begin.elapsed_time(end) / 1000 / self.turns)

    def _mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _count(self, steps: int, seconds: float) -> None:
        self.steps += steps
        self.seconds += seconds
