"""Runs that take turns on one device: alone one after another, or several side by side."""

from collections.abc import Callable, Iterator, Sequence

from zetamix.records import RunRecord
from zetamix.train.run import Progress, Run


def train(
    runs: Sequence[Run],
    *,
    concurrent: int = 1,
    watch: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[RunRecord]:
    """Train all runs, up to `concurrent` side by side, and return the records of those done.

    Finished runs are not trained again. When `stop` says so, what is under way is saved.
    """
    if concurrent < 1:
        raise ValueError(f"concurrent must be at least 1, got {concurrent}.")
    done = runs[0].ranks.share([run.record for run in runs]) if runs else []
    for run, record in zip(runs, done, strict=True):
        run.record = record
        if record is not None and run.ranks.leads:
            run.folder.tidy()
    waiting = [run for run in runs if run.record is None]
    active: dict[Run, Iterator[Progress]] = {}
    try:
        while waiting or active:
            # one at a time: runs that end their epochs apart evaluate while the others train
            if waiting and len(active) < concurrent:
                run = waiting.pop(0)
                active[run] = run.advance()
            for run in _round(active, watch):
                del active[run]
            if stop is not None and runs[0].ranks.any(stop()):
                for run in active:
                    run.collect()
                break
    finally:
        # on an error of one run, an interrupt or a stop alike; a run that was broken off within a
        # step keeps the checkpoint it has
        for run in active:
            if run.settled:
                run.save()
    return [run.record for run in runs if run.record is not None]


def _round(
    active: dict[Run, Iterator[Progress]], watch: Callable[[Progress], None] | None
) -> list[Run]:
    """Take every run a few steps further, and return those that have ended."""
    for run in active:
        run.share(len(active))
    words = [(run, _go_on(run, steps)) for run, steps in active.items()]
    for _, word in words:
        if word is not None and watch is not None:
            watch(word)
    return [run for run, word in words if word is None]


def _go_on(run: Run, steps: Iterator[Progress]) -> Progress | None:
    run.settled = False
    try:
        word = next(steps, None)
    except Exception as error:
        # whoever catches it can tell which of many runs it was
        error.add_note(run.name)
        raise
    run.settled = True
    return word
