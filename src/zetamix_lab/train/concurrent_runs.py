"""Several runs on one device: one after another, or some of them side by side."""

import time
from collections.abc import Callable, Iterator, Sequence

import torch

from zetamix_lab.data.errors import DataError
from zetamix_lab.provenance import FileChangedError
from zetamix_lab.train.run import Line, Run
from zetamix_lab.train.run_folder import FolderError
from zetamix_lab.train.stop import Stopped
from zetamix_lab.train.trainer import NonFiniteLossError


def describe_failure(error: BaseException) -> str | None:
    """Why a run has no result: it diverged, ran out of memory, or its folder or data is unusable.

    None if the error is not that of a single run.
    """
    # an error during graph capture is followed by one from the end of the capture
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.cuda.OutOfMemoryError):
            return (
                "The GPU is out of memory. Train fewer runs side by side (--jobs), or use smaller "
                "batches (--set batch_size=...). PyTorch reports: "
                f"{str(cause).splitlines()[0]}"
            )
        cause = cause.__context__
    own = (NonFiniteLossError, FolderError, DataError, FileChangedError)
    return str(error) if isinstance(error, own) else None


def train(
    runs: Sequence[Run],
    *,
    jobs: int = 1,
    watch: Callable[[Run, Line], None] = lambda run, line: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[Run, str]:
    """Train all runs, up to `jobs` of them side by side; returns why a run has no record.

    A finished run is not trained again. If a run diverges, exceeds the GPU memory, or cannot use
    its folder or data, the others continue. On any other error, and when `stop` returns True,
    between two steps or two batches of an evaluation, the current runs are saved; the same runs can
    be trained on.

    watch: called with a run and what `Run.advance` yields, each time it has advanced.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    for run in runs:
        if run.record is not None:
            run.folder.clean_up()
    waiting = [run for run in runs if run.record is None]
    active: dict[Run, Iterator[Line]] = {}
    failures: dict[Run, str] = {}
    stopped = False
    try:
        while (waiting or active) and not stopped:
            # one run starts per round, so that epochs end at different times and runs evaluate
            # while others train
            if waiting and len(active) < jobs:
                run = waiting.pop(0)
                active[run] = run.advance(stop)
            for run in active:
                run.share_device(len(active))
            for run in list(active):
                line = _advance(run, active, failures)
                if line is not None:
                    watch(run, line)
            if active and all(run.waiting for run in active):
                # nothing to launch: check again shortly
                time.sleep(0.001)
            stopped = stop()
    except Stopped:
        pass
    finally:
        for run in active:
            try:
                run.save()
            except FolderError as error:
                failures[run] = str(error)
    return failures


def _advance(run: Run, active: dict[Run, Iterator[Line]], failures: dict[Run, str]) -> Line | None:
    """Advance a run by a few steps; remove it from the active runs if it ends or fails."""
    # removed first: a run interrupted within a step must keep its last checkpoint
    steps, line = active.pop(run), None
    try:
        line = next(steps, None)
    except Stopped:
        # during an evaluation, which starts again when the run is resumed
        active[run] = steps
        raise
    except Exception as error:
        failure = describe_failure(error)
        if failure is None:
            error.add_note(f"{run.method.label} seed {run.seed}")
            raise
        failures[run] = failure
    if line is not None:
        active[run] = steps
    elif run in failures:
        # outside the except block, nothing references the error, and through it the model
        run.trainer = None
        if run.device.type == "cuda":
            torch.cuda.empty_cache()
    return line
