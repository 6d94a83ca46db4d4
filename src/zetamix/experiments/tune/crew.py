"""Who trains: the workers, and what all of them are told alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from zetamix.data import Dataset, DatasetRef
from zetamix.experiments.tune.question import Question
from zetamix.experiments.tune.work import Job, Task
from zetamix.experiments.workers import Workers

# models side by side on one GPU, as in `compare`
PER_GPU = 4


@dataclass(frozen=True)
class Crew:
    """Workers, and everything about a job that does not differ from one to the next."""

    workers: Workers
    question: Question
    home: Path
    token: str
    device: str | None
    compile: bool
    save_every: float
    at_once: int
    """Models of one job, which train side by side in one process."""

    def job(self, tasks: Sequence[Task], judge: str) -> Job:
        return Job(
            tasks=tuple(tasks),
            metric=self.question.metric,
            judge=judge,
            held_out=self.question.held_out,
            fingerprint=self.question.seen(judge).fingerprint,
            home=self.home,
            token=self.token,
            device=self.device,
            compile=self.compile,
            save_every=self.save_every,
        )

    def shared(self, judge: str) -> DatasetRef | Dataset:
        """The data, or where it is: other machines may not have it."""
        source = self.question.source
        return self.question.seen(judge) if source is None or self.workers.elsewhere else source


def plan_places(jobs: int | None, backend: str, device: str | None) -> tuple[int | None, int]:
    """Processes (None: as many as there is room for) and models side by side in each.

    Processes on a CPU, models side by side in one process for each GPU.
    """
    if backend != "local" or device == "cpu" or not torch.cuda.is_available():
        return jobs, 1
    gpus = 1 if device is not None and ":" in device else torch.cuda.device_count()
    return gpus, PER_GPU if jobs is None else -(-jobs // gpus)
