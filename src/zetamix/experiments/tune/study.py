"""The trials of a study: created by Optuna, retried when their process dies, read as results."""

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import optuna
from filelock import FileLock, Timeout
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from zetamix.experiments.tune.sampler import make_pruner, make_sampler
from zetamix.experiments.tune.spec import StudyError, check_settings
from zetamix.experiments.tune.storage import GRACE, HEARTBEAT, open_storage, storage_errors
from zetamix.metrics import METRICS
from zetamix.results.tuning import SearchPlan, SettingResult, State, StudySpec, Trial, best_of

# times that a trial is retried after its process died
MAX_RETRIES = 3


@dataclass(frozen=True)
class WorkerSettings:
    """Settings that all workers of one command share."""

    study_name: str
    spec: StudySpec
    plan: SearchPlan
    out: Path
    token: str = ""
    save_every: float = 60.0
    heartbeat: int = HEARTBEAT
    """Seconds between two heartbeats of a trial."""
    grace: int = GRACE
    """Seconds from the last heartbeat until another worker takes over the trial."""


def open_study(url: str, settings: WorkerSettings) -> optuna.Study:
    """Load a study, or create it; raises if it was created with other settings."""
    name, spec, plan = settings.study_name, settings.spec, settings.plan
    storage = open_storage(url, heartbeat=settings.heartbeat, grace=settings.grace, on_stale=retry)
    with storage_errors(storage.engine.url):
        study = optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize" if METRICS[spec.metric].higher_is_better else "minimize",
            sampler=make_sampler(plan, spec.seed, index_of),
            pruner=make_pruner(plan.prune, spec.recipe.epochs),
            load_if_exists=True,
        )
        if "zetamix" not in study.user_attrs and not study.get_trials(deepcopy=False):
            study.set_user_attr("zetamix", spec.as_dict())
        check_settings(study.user_attrs.get("zetamix"), spec.as_dict(), name)
        if plan.grid:
            _check_seeds(study, plan)
    return study


def _check_seeds(study: optuna.Study, plan: SearchPlan) -> None:
    """More seeds extend a grid; other seeds would be another grid."""
    used = [trial.user_attrs.get("seed") for trial in attempts(study)][:: len(plan.grid)]
    if any(old not in (None, new) for old, new in zip(used, plan.seeds, strict=False)):
        raise StudyError(
            f"Study {study.study_name} was trained with seeds {', '.join(map(str, used))}. Start "
            "--seeds with these, or create a new study with --study NAME."
        )


# retries: a trial that is run again is a new trial of Optuna with the origin's number


def origin(trial: FrozenTrial) -> int:
    """The number of the first attempt of a trial."""
    return int(trial.user_attrs.get("origin", trial.number))


def index_of(study: optuna.Study, number: int) -> int:
    """The position of a trial in the search, from 0 on; all its attempts share it."""
    trials = study.get_trials(deepcopy=False)
    first = origin(trials[number])
    return sum(
        origin(trial) == trial.number < first and "surplus" not in trial.user_attrs
        for trial in trials
    )


def attempts(study: optuna.Study) -> list[FrozenTrial]:
    """The last attempt of every trial, in the order of the search."""
    latest: dict[int, FrozenTrial] = {}
    for trial in study.get_trials(deepcopy=False):
        first = origin(trial)
        if "surplus" not in trial.user_attrs and not (first in latest and is_over(latest[first])):
            latest[first] = trial
    return [latest[first] for first in sorted(latest)]


def is_over(trial: FrozenTrial) -> bool:
    """Whether a trial has a result, failed for good, or was retried too often."""
    if trial.state != TrialState.FAIL:
        return trial.state.is_finished()
    return "failure" in trial.user_attrs or _deaths(trial) > MAX_RETRIES


def can_start(study: optuna.Study, total: int) -> bool:
    """Whether a trial is waiting to be retried, or fewer than `total` were started."""
    trials = attempts(study)
    return len(trials) < total or any(trial.state == TrialState.WAITING for trial in trials)


def retry(study: optuna.Study, trial: FrozenTrial) -> None:
    """Queue a trial again, with its values, after it was interrupted or its process died."""
    deaths = _deaths(trial)
    if deaths <= MAX_RETRIES:
        again = optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={"origin": origin(trial), "deaths": deaths},
        )
        study.add_trial(again)


def _deaths(trial: FrozenTrial) -> int:
    """How many attempts of a failed trial were killed, including this one; stops do not count."""
    return int(trial.user_attrs.get("deaths", 0)) + ("interrupted" not in trial.user_attrs)


def recover(study: optuna.Study, *, grace: float, lost_after: float) -> None:
    """Retry trials whose process died, and failed trials that were not queued again.

    grace: seconds without a heartbeat. A dead process of this machine is detected immediately,
        because it no longer holds the lock of its folder.
    lost_after: seconds after which no other process will queue a failed trial.
    """
    optuna.storages.fail_stale_trials(study)
    for trial in attempts(study):
        if trial.state == TrialState.RUNNING and _is_dead(trial, grace):
            # another process may have detected it at the same time, and retries it
            with suppress(UpdateFinishedTrialError, ValueError):
                study.tell(trial.number, state=TrialState.FAIL)
                retry(study, trial)
        lost = trial.state == TrialState.FAIL and not is_over(trial)
        if lost and _age(trial.datetime_complete) >= lost_after:
            retry(study, trial)


def lock_name(path: Path) -> str:
    """The lock that a trial's process holds, in the attributes of the trial."""
    return f"{socket.gethostname()}:{path}"


def _is_dead(trial: FrozenTrial, grace: float) -> bool:
    if "lock" not in trial.user_attrs:
        # Optuna's heartbeat starts after the trial is created: its process may have died in between
        return _age(trial.datetime_start) > grace
    host, _, path = str(trial.user_attrs["lock"]).partition(":")
    if host != socket.gethostname() or not Path(path).exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return True
    except Timeout:
        return False


def _age(moment: datetime | None) -> float:
    return 0.0 if moment is None else (datetime.now() - moment).total_seconds()


# reading


@dataclass(frozen=True)
class SearchProgress:
    """The progress of a search."""

    total: int
    counts: Mapping[State, int]
    """Ended trials, by state."""
    running: Mapping[int, int]
    """Evaluated epochs of running trials, by trial."""
    best: SettingResult | None
    seconds_left: float | None
    """None if it cannot be estimated yet."""
    deaths: int = 0
    """Workers of this command that were killed."""
    baseline: str = ""
    """The method, if a baseline is searched."""

    @property
    def done(self) -> int:
        return sum(self.counts.values())


def read_trials(study: optuna.Study, spec: StudySpec) -> list[Trial]:
    """All ended trials, numbered by their position in the search."""
    trials = enumerate(attempts(study))
    return [_read_trial(index, trial, spec) for index, trial in trials if is_over(trial)]


def _read_trial(index: int, trial: FrozenTrial, spec: StudySpec) -> Trial:
    attrs = trial.user_attrs
    state: State = "complete" if trial.state == TrialState.COMPLETE else "failed"
    if trial.state == TrialState.PRUNED:
        state = "diverged" if "diverged" in attrs else "pruned"
    # a trial whose process died immediately may have no values
    drawn = {parameter.name for parameter in spec.space.searched} <= trial.params.keys()
    return Trial(
        number=index,
        setting=spec.space.setting(trial.params) if drawn else {},
        seed=attrs.get("seed", 0),
        state=state,
        value=None if state in ("diverged", "failed") else trial.value,
        standard_error=attrs.get("standard_error"),
        scores=attrs.get("scores", {}),
        curve=dict(sorted(trial.intermediate_values.items())),
        seconds=attrs.get("seconds", 0.0),
    )


def read_progress(
    study: optuna.Study, spec: StudySpec, total: int, deaths: int = 0
) -> SearchProgress:
    trials, over = attempts(study), read_trials(study, spec)
    running = [trial for trial in trials if trial.state == TrialState.RUNNING]
    spans = [t.duration.total_seconds() for t in trials if is_over(t) and t.duration is not None]
    return SearchProgress(
        total=total,
        counts=Counter(trial.state for trial in over),
        running={origin(trial): trial.last_step or 0 for trial in running},
        best=best_of(over, spec.metric),
        seconds_left=seconds_left(total - len(over), len(running), spans),
        deaths=deaths,
        baseline=spec.space.baseline,
    )


def seconds_left(left: int, running: int, spans: Sequence[float]) -> float | None:
    """An estimate from the durations of finished trials; running trials count as half done.

    >>> seconds_left(6, 2, [10.0, 14.0])
    30.0
    """
    if left <= 0:
        return 0.0
    if not spans:
        return None
    return sum(spans) / len(spans) * max(0.5, left - running / 2) / max(1, running)
