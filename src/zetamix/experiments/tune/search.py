"""Trials from the first to the last: claimed, trained by workers, watched over, told of."""

import math
import time
from collections.abc import Iterator

from zetamix.experiments.tune.crew import Crew
from zetamix.experiments.tune.oversee import Stop, overseeing
from zetamix.experiments.tune.presence import BEAT
from zetamix.experiments.tune.question import Question
from zetamix.experiments.tune.study import Claim, Study
from zetamix.experiments.tune.work import Ended, Job, Task, train_tasks
from zetamix.experiments.workers import Workers
from zetamix.measure.statistics import standard_error
from zetamix.results.tuning import Watch

# seconds between looks at a study whose last trials are trained by other commands
WAIT = 1.0


def search(study: Study, crew: Crew, watch: Watch, stop: Stop) -> None:
    """Train until the study has all its trials, or until `stop`."""
    beats = _Beats(study)

    def look() -> None:
        report(study, crew.workers)
        beats()
        watch(study.standing(idle(study, crew.workers), crew.workers.died))

    judge = study.question.judge
    with overseeing(crew.workers, stop, look) as stopped:
        while not stopped() and not study.finished():
            claims = _Claims(study, crew, stopped)
            for job, ended in crew.workers.run(train_tasks, claims, crew.shared(judge)):
                for task in job.tasks:
                    settle(study, int(task.name), ended[task.name])
            claims.check()
            if not claims.made and not stopped():
                # the last trials are with other commands: theirs may yet be ours to go on with
                time.sleep(WAIT)
    watch(study.standing(died=crew.workers.died))


class _Beats:
    """A sign of life from time to time."""

    def __init__(self, study: Study) -> None:
        self.study, self.last = study, time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self.last > BEAT:
            self.last = time.monotonic()
            self.study.presence.beat()


def settle(study: Study, number: int, ended: Ended) -> None:
    """Tell the study what became of a trial."""
    if ended.how == "lost":
        return
    if ended.how == "stopped":
        study.release(number)
        return
    study.report(number, ended.curve)
    facts = {"seconds": round(ended.seconds, 2)}
    if ended.how == "prune":
        study.prune(number, facts)
        return
    metric = study.question.metric
    value = math.nan if ended.record is None else ended.record.last[metric]
    if ended.record is None or not math.isfinite(value):
        study.diverge(number, facts)
        return
    error = standard_error(metric, ended.record.confusion)
    study.complete(number, value, {**facts, "error": error, "scores": ended.record.last})


class _Claims:
    """Jobs of claimed trials, as workers become free for them.

    Workers ask from threads of their own, where an error would be heard by nobody: it is kept.
    """

    def __init__(self, study: Study, crew: Crew, stop: Stop) -> None:
        self.study, self.crew, self.stop = study, crew, stop
        self.made = 0
        self.trouble: BaseException | None = None

    def __iter__(self) -> Iterator[Job]:
        while not self.stop():
            try:
                claims = self._claim()
            except Exception as error:
                self.trouble = error
                return
            if not claims:
                return
            self.made += 1
            tasks = [_task(self.study.question, claim) for claim in claims]
            yield self.crew.job(tasks, self.study.question.judge)

    def _claim(self) -> list[Claim]:
        claims: list[Claim] = []
        while len(claims) < self.crew.at_once:
            claim = self.study.claim()
            if claim is None:
                break
            claims.append(claim)
        return claims

    def check(self) -> None:
        if self.trouble is not None:
            raise self.trouble


def _task(question: Question, claim: Claim) -> Task:
    return Task(
        name=str(claim.number),
        method=question.space.method(claim.setting).label,
        recipe=question.space.recipe(claim.setting, question.recipe),
        seed=claim.seed,
        folder=f"trials/{claim.place:04d}",
    )


def idle(study: Study, workers: Workers) -> set[int]:
    """Claimed trials that no worker is at: not begun yet, or at their end and not yet told of."""
    words = {number: workers.board.get(str(number)) for number in study.mine()}
    return {number for number, word in words.items() if word is None or word.get("ended")}


def report(study: Study, workers: Workers) -> None:
    """Hand on what workers tell, and tell them which models are not worth going on with."""
    for number in study.mine():
        word = workers.board.get(str(number))
        if word is None:
            continue
        verdict = study.report(number, {int(epoch): value for epoch, value in word["curve"]})
        if verdict != "go on":
            workers.board.put(f"end-{number}", {"how": verdict})
