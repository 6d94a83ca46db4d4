"""`tune`: search on the validation split, then score the chosen setting on the test split."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from filelock import FileLock, Timeout
from optuna import Study
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState

from zetamix.data import DataError
from zetamix.experiments.executor import POLL_SECONDS, Channel, Executor, Stop, open_executor
from zetamix.experiments.progress import Snapshot
from zetamix.experiments.run_cells import (
    folder_token,
    plan_gpus,
    run_cells,
    use_device,
    working_folder,
)
from zetamix.experiments.tune.objective import Objective, TrialStopped
from zetamix.experiments.tune.spec import make_plan
from zetamix.experiments.tune.storage import patiently, sqlite_url
from zetamix.experiments.tune.study import (
    SearchProgress,
    WorkerSettings,
    attempts,
    can_start,
    is_over,
    open_study,
    read_progress,
    read_trials,
    recover,
    retry,
)
from zetamix.methods import choose_methods, display_name, parse
from zetamix.records import Cell
from zetamix.results.search_space import Setting, Space
from zetamix.results.tuning import CHOSEN, Candidate, SearchPlan, StudySpec, Tuning
from zetamix.train import Recipe, make_cell
from zetamix.train.cuda_graph import compiling_pays

TEST_SEEDS = 3
# baselines: what would be used without a search
BASELINES = "none,switch,zetamix,zeta"
# test seeds differ from those of all trials, so that a lucky seed of the search is not reused
FIRST_TEST_SEED = 1_000_000
# seconds to wait for a database server that does not answer
PATIENCE = 60.0

Watch: TypeAlias = Callable[[SearchProgress | Snapshot], None]


@dataclass(frozen=True)
class WorkerJob:
    """One trial for a process, or all that are left for the threads of a GPU."""

    url: str
    """Sent with every job, because data shared by workers may be written to disk."""
    device: str | None
    threads: int


def tune(
    spec: StudySpec,
    plan: SearchPlan,
    *,
    out: Path,
    storage: str | None = None,
    name: str | None = None,
    test_seeds: int = TEST_SEEDS,
    jobs: int | None = None,
    backend: str = "local",
    address: str | None = None,
    device: str | None = None,
    save_every: float = 60.0,
    poll_seconds: float = POLL_SECONDS,
    watch: Watch | None = None,
    stop: Stop | None = None,
) -> Tuning:
    """Train the trials that a study lacks, choose the best setting on validation, then test it.

    If parameters of the recipe are searched, every baseline gets its own search over them, with as
    many trials: otherwise the baselines would be untuned.

    The same call resumes a study that was interrupted or killed. Several calls may share a study:
    on one machine through the SQLite file in `out`, between machines through a PostgreSQL server.

    storage: URL of the database; None for a file in `out`. name: name of the study in it.
    test_seeds: number of seeds of the final test; 0 skips it.
    jobs: number of parallel trials: processes on a CPU (default: one per core), threads of one
        process on each GPU (default: 4).
    watch: called with the progress every `poll_seconds`, from a thread, and at the end.
    stop: once it returns True, running trials save their checkpoints and end.
    """
    if test_seeds and spec.dataset.test is None:
        raise DataError(
            f"{spec.dataset.name} has no test split for the final test. Use --test-seeds 0 to skip "
            "it."
        )
    url, study_name = storage or sqlite_url(out / "study.db"), name or f"tune-{spec.dataset.name}"
    settings = WorkerSettings(study_name, spec, plan, out.absolute(), save_every=save_every)
    options: dict[str, Any] = {
        "backend": backend,
        "address": address,
        "stop": stop,
        "poll_seconds": poll_seconds,
    }
    threads, devices, workers = plan_workers(jobs, backend, device)

    def search(settings: WorkerSettings) -> tuple[Study, Tuning]:
        study, total = open_study(url, settings), settings.plan.trials
        with open_executor(jobs=total, workers=workers, **options) as executor:
            _search(executor, study, url, settings, [*devices], threads, watch)
            description = executor.description
        trials = tuple(read_trials(study, settings.spec))
        return study, Tuning(settings.spec, settings.plan, trials, description=description)

    study, tuning = search(settings)
    if tuning.chosen is None or not (test_seeds and tuning.finished):
        return tuning
    baselines: dict[str, Recipe] = {}
    for label in baselines_of(spec):
        space = spec.space.for_baseline(label)
        chosen = {p.name: p.values[0] for p in space.parameters if p.fixed}
        if space.searched:
            _, found = search(_baseline_settings(settings, space))
            if not found.finished:
                return tuning
            if found.chosen is None:
                reason = f"No trial of the search for {display_name(label)} is complete."
                return replace(tuning, test_failures=(reason,))
            chosen = found.chosen.setting
        baselines[label] = space.recipe(chosen, spec.recipe)
    options |= {"jobs": jobs, "device": device, "save_every": save_every, "watch": watch}
    return _test(tuning, tuning.chosen.setting, baselines, study, test_seeds, out, options)


def _baseline_settings(settings: WorkerSettings, space: Space) -> WorkerSettings:
    """The same search for a baseline: its own study and folder, with as many trials."""
    spec, plan = replace(settings.spec, space=space), settings.plan
    name = space.baseline.replace(":", "-")
    trials = None if plan.grid else plan.trials
    return replace(
        settings,
        study_name=f"{settings.study_name}-{name}",
        spec=spec,
        plan=make_plan(spec, plan.sampler, trials, plan.prune or None, plan.seeds or None),
        out=settings.out / "baselines" / name,
    )


def plan_workers(
    jobs: int | None, backend: str, device: str | None, gpus: int | None = None
) -> tuple[int, list[str | None], int | None]:
    """Threads per worker, the devices, and the number of workers (None: as many as possible).

    One process per GPU, with several threads; on a CPU and on a cluster one process per trial.

    gpus: the number of GPUs; None asks torch.
    """
    devices, threads = plan_gpus(jobs, backend, device, gpus)
    return (threads, [*devices], len(devices)) if devices else (1, [device], jobs)


def _search(
    executor: Executor,
    study: Study,
    url: str,
    settings: WorkerSettings,
    devices: list[str | None],
    threads: int,
    watch: Watch | None,
) -> None:
    """Hand jobs to workers until the study has all its trials.

    devices: those that are idle; a single one is shared by all workers.
    """
    spec, total, shared = settings.spec, settings.plan.trials, len(devices) == 1
    if executor.remote:
        # other machines may not have the data
        settings = replace(settings, spec=replace(spec, ref=None), token=folder_token(settings.out))

    def look() -> None:
        # the next call may reach the server; the search itself waits for it
        with suppress(StorageInternalError):
            if watch is not None:
                watch(read_progress(study, spec, total, executor.deaths))

    def status(lost_after: float) -> Literal["finished", "startable", "waiting"]:
        recover(study, grace=settings.grace, lost_after=lost_after)
        if sum(map(is_over, attempts(study))) >= total:
            return "finished"
        return "startable" if can_start(study, total) else "waiting"

    def jobs() -> Iterator[WorkerJob]:
        # wait while the last trials run in other commands: their processes may be killed
        lost_after = 0.0
        while not executor.channel.stop_requested():
            now = patiently(partial(status, lost_after), PATIENCE)
            lost_after = settings.grace
            if now == "finished":
                return
            if now == "startable":
                yield WorkerJob(url, devices[0] if shared else devices.pop(0), threads)
            else:
                time.sleep(executor.poll_seconds)

    with executor.watched(look):
        for job, _ in executor.run(run_trials, jobs(), settings):
            devices.append(job.device)
    look()


def run_trials(job: WorkerJob, settings: WorkerSettings, channel: Channel) -> None:
    """Run trials of a study; workers run this function."""
    device, recipe = use_device(job.device), settings.spec.recipe
    steps = recipe.steps(len(settings.spec.dataset.train))
    folder = working_folder(settings.out, settings.token) / "trials"
    compiled = compiling_pays(device, steps)
    objective = Objective(settings, folder, device, compiled, channel.stopped)

    def after_trial(study: Study, trial: FrozenTrial) -> None:
        if trial.state == TrialState.FAIL and "interrupted" in trial.user_attrs:
            retry(study, trial)
        if objective.stopped() or not can_start(study, settings.plan.trials):
            study.stop()

    with warnings.catch_warnings():
        # a γ below GAMMA_MIN, for which the transform warns, is part of the search
        warnings.simplefilter("ignore", UserWarning)
        try:
            open_study(job.url, settings).optimize(
                objective,
                n_trials=1 if job.threads == 1 else None,
                n_jobs=job.threads,
                catch=(TrialStopped,),
                callbacks=[after_trial],
            )
        except StorageInternalError:
            # the checkpoint is saved, and the trial is retried once the server answers
            time.sleep(1.0)
        except (ValueError, AssertionError) as error:
            # Optuna rejects the result of a trial that another process took over; if that happened
            # after the objective returned, its error is hidden by an assertion
            hidden = isinstance(error, AssertionError) and isinstance(error.__context__, ValueError)
            if not objective.lost and not hidden:
                raise


def baselines_of(spec: StudySpec) -> list[str]:
    """The methods that the chosen setting is tested against."""
    images = len(spec.dataset.shape) == 3
    return [method.label for method in choose_methods(BASELINES, images=images)]


def make_candidates(
    spec: StudySpec, chosen: Setting, baselines: Mapping[str, Recipe]
) -> list[Candidate]:
    """The baselines, each with its recipe, and the chosen setting."""
    method, recipe = spec.space.method(chosen).label, spec.space.recipe(chosen, spec.recipe)
    others = [
        Candidate(label, label, tuned)
        for label, tuned in baselines.items()
        if (label, tuned) != (method, recipe)
    ]
    return [*others, Candidate(CHOSEN, method, recipe)]


def _test(
    tuning: Tuning,
    chosen: Setting,
    baselines: Mapping[str, Recipe],
    study: Study,
    seeds: int,
    out: Path,
    options: dict[str, Any],
) -> Tuning:
    """Train all candidates with new seeds and score them on the test split."""
    spec = tuning.spec
    dataset, first = spec.dataset, FIRST_TEST_SEED + spec.seed
    cells = {
        candidate: [
            make_cell(dataset, parse(candidate.method), candidate.recipe, seed)
            for seed in range(first, first + seeds)
        ]
        for candidate in make_candidates(spec, chosen, baselines)
    }
    order = [cell for group in zip(*cells.values(), strict=True) for cell in group]
    # another command may be testing the same study: then its records are used
    lock = FileLock(out / ".test.lock")
    while not lock.is_locked:
        try:
            lock.acquire(timeout=options["poll_seconds"])
        except Timeout:
            if options["stop"] is not None and options["stop"]():
                return tuning
    ref = None if spec.held_out else spec.ref
    try:
        results = run_cells(order, dataset, out=out, folder_of=_test_folder, ref=ref, **options)
    finally:
        lock.release()
    tested = [
        replace(candidate, records=tuple(results.records[cell.key] for cell in group))
        for candidate, group in cells.items()
        if all(cell.key in results.records for cell in group)
    ]
    failures = tuple(sorted(set(results.failures.values())))
    if len(tested) < len(cells):
        return replace(tuning, test_failures=failures)
    settings = list(study.user_attrs.get("tested", []))
    if chosen not in settings:
        settings.append(chosen)
        study.set_user_attr("tested", settings)
    return replace(tuning, tested=tuple(tested), settings_tested=len(settings))


def _test_folder(cell: Cell) -> str:
    # with more trials, another setting may be chosen, whose cell has another key
    return f"test/{cell.file_name}-s{cell.seed}-{cell.key}"
