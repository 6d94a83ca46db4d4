"""From a question to its answer: search on the validation split, then look at the test split."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zetamix.atomic_io import write_text
from zetamix.data import DataError
from zetamix.experiments.tune.crew import Crew, plan_places
from zetamix.experiments.tune.final import Evaluated, evaluate
from zetamix.experiments.tune.oversee import Stop
from zetamix.experiments.tune.plan import Plan
from zetamix.experiments.tune.question import Question, StudyError
from zetamix.experiments.workers import open_workers
from zetamix.results.tuning import Trial, Tried, Watch, best_of

if TYPE_CHECKING:
    from zetamix.experiments.tune.study import Study

TEST_SEEDS = 3


@dataclass(frozen=True, eq=False)
class Tuning:
    """All that a report is made of."""

    question: Question
    trials: tuple[Trial, ...]
    total: int
    """Trials that were asked for."""
    tested: tuple[Evaluated, ...] = ()
    """On the test split; empty where the search is not finished, or where test was the judge."""
    settings_tested: int = 0
    """How many chosen settings have been tried on the test split so far, this one among them."""
    sampler: str = "tpe"
    prune: bool = False
    where: str = ""
    """Where it was trained, in words."""
    storage: str = ""

    @property
    def finished(self) -> bool:
        return len(self.trials) >= self.total

    @property
    def chosen(self) -> Tried | None:
        """The best setting; None where no trial went to its end."""
        return best_of(self.trials, self.question.lower_is_better)


def tune(
    question: Question,
    plan: Plan,
    *,
    out: Path,
    storage: str | None = None,
    name: str | None = None,
    test_seeds: int = TEST_SEEDS,
    jobs: int | None = None,
    backend: str = "local",
    address: str | None = None,
    device: str | None = None,
    compile: bool = False,
    save_every: float = 60.0,
    watch: Watch | None = None,
    stop: Stop | None = None,
) -> Tuning:
    """Train what a study lacks, choose by the validation split, then test what was chosen.

    The same call goes on where an earlier one stopped, however it ended; several at a time share
    the work, on many machines where `storage` is a PostgreSQL server.

    storage: a database's address; None is a file in `out`. name: of the study in it.
    test_seeds: models of each contender for the test split; 0 leaves it unread.
    jobs: trials at a time: processes on a CPU (one for each core by default), models side by side
        in one process on a GPU (4 by default).
    backend: "local", or "ray" for a cluster at `address` ("auto", host:port; None starts one).
    watch: called about twice a second, from a thread of its own, and once at the end.
    stop: asked as often; once it says so, what is under way is saved.
    """
    if test_seeds and question.dataset.test is None:
        raise DataError(
            f"{question.dataset.name} has no test split to try the chosen setting on. Add "
            "--test-seeds 0 to choose without it."
        )
    watch = watch or (lambda progress: None)
    stop = stop or (lambda: False)
    count, at_once = plan_places(jobs, backend, device)
    with (
        _open(question, plan, out, storage, name) as study,
        open_workers(
            backend,
            plan.trials,
            folder=study.presence.folder / "board",
            count=count,
            address=address,
        ) as workers,
    ):
        crew = Crew(
            workers, question, out.absolute(), _token(out), device, compile, save_every, at_once
        )
        _search(study, plan, crew, watch, stop)
        tested = _test(study, test_seeds, crew, watch, stop)
        return Tuning(
            question=question,
            trials=tuple(study.trials()),
            total=plan.trials,
            tested=tested,
            settings_tested=len(study.tested()),
            sampler=plan.sampler,
            prune=plan.prune,
            where=workers.where,
            storage=study.storage.shown,
        )


def _open(
    question: Question, plan: Plan, out: Path, storage: str | None, name: str | None
) -> "Study":
    try:
        from zetamix.experiments.tune.storage import Storage, sqlite_in
        from zetamix.experiments.tune.study import Study
    except ModuleNotFoundError as error:
        if error.name not in ("optuna", "sqlalchemy"):
            raise
        raise StudyError(f"Tuning needs {error.name}: pip install 'zetamix[tune]'") from None
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(
            f"Cannot write to {out}: {error.strerror}. Choose another --out."
        ) from None
    return Study(
        Storage(storage or sqlite_in(out), name or f"tune-{question.dataset.name}"),
        question,
        commands=out.absolute() / ".commands",
        trials=plan.trials,
        sampler=plan.sampler,
        prune=plan.prune,
    )


def _search(study: "Study", plan: Plan, crew: Crew, watch: Watch, stop: Stop) -> None:
    from zetamix.experiments.tune.search import search

    if plan.grid:
        study.queue(plan.grid, plan.seeds)
    search(study, crew, watch, stop)


def _test(
    study: "Study", seeds: int, crew: Crew, watch: Watch, stop: Stop
) -> tuple[Evaluated, ...]:
    """One look at the test split, when all trials are over and not before."""
    question = study.question
    chosen = best_of(study.trials(), question.lower_is_better)
    if chosen is None or not seeds or question.judge == "test" or not study.finished():
        return ()
    tested = evaluate(question, chosen.setting, seeds, crew, watch, stop)
    if tested:
        study.note_tested(chosen.setting)
    return tuple(tested)


def _token(out: Path) -> str:
    """Tells this folder from one of the same name on another machine."""
    path = out / ".here"
    if not path.exists():
        write_text(path, secrets.token_hex(8))
    return path.read_text()
