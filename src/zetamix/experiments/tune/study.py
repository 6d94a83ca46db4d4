"""One study that any number of commands may work on: who trains what, and what came of it."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import optuna
from optuna.trial import FrozenTrial, TrialState

from zetamix.experiments.tune.presence import GRACE, Presence
from zetamix.experiments.tune.question import Question, StudyError, check_same
from zetamix.experiments.tune.sampler import facts_of, make_pruner, make_sampler, place_of
from zetamix.experiments.tune.storage import Storage
from zetamix.experiments.tune.tries import drawn_of, is_over, queue, queue_again, take_back
from zetamix.results.search_space import Setting
from zetamix.results.tuning import Standing, State, Trial

Result = TypeVar("Result")
Verdict: TypeAlias = Literal["go on", "prune", "lost"]

# how long a storage that was lost meanwhile is waited for, in seconds
PATIENCE = 60.0


@dataclass(frozen=True)
class Claim:
    """A trial that is this command's to train."""

    number: int
    """Optuna's, another one for every try."""
    place: int
    """In the search, the same for all its tries; they share a folder, and so a checkpoint."""
    setting: Setting
    seed: int


class Study:
    """A question, its trials in a storage, and this command's part in them.

    commands: a folder of this machine where commands at work keep a lock each.
    trials: how many the study is to have; for a grid, all of its places.
    """

    def __init__(
        self,
        storage: Storage,
        question: Question,
        *,
        commands: Path,
        trials: int,
        sampler: str = "tpe",
        prune: bool = False,
        grace: float = GRACE,
    ) -> None:
        self.storage, self.question, self.total = storage, question, trials
        self.is_grid = sampler == "grid"
        self._distributions = question.space.distributions()
        self._names = set(self._distributions)
        self._open: dict[int, optuna.Trial] = {}
        # one thread claims, one reports what workers tell, and one tells what came of it
        self._turn = threading.RLock()
        try:
            with storage.told(), storage.exclusive():
                self.optuna = self._load_or_create()
        except BaseException:
            storage.close()
            raise
        self.optuna.sampler = make_sampler(sampler, question.seed)
        self.optuna.pruner = make_pruner(prune, question.recipe.epochs)
        self.presence = Presence(self.optuna, commands, grace)

    def __enter__(self) -> "Study":
        # no other command may find the lock made and not yet taken
        with self.storage.told(), self.storage.exclusive():
            self.presence.take()
        self.presence.beat()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for number in list(self._open):
                self.release(number)
        finally:
            self.presence.leave()
            # those of others only after their trials could be taken back
            with suppress(StudyError), self.storage.told(), self.storage.exclusive():
                self.presence.sweep()
            self.storage.close()

    # opening

    def _load_or_create(self) -> optuna.Study:
        name, asked = self.storage.name, self.question.as_dict()
        if name not in optuna.get_all_study_names(self.storage.rdb):
            study = optuna.create_study(
                storage=self.storage.rdb,
                study_name=name,
                direction="minimize" if self.question.lower_is_better else "maximize",
            )
            study.set_user_attr("zetamix", asked)
            return study
        study = optuna.load_study(storage=self.storage.rdb, study_name=name)
        check_same(study.user_attrs.get("zetamix"), asked, f"{name} in {self.storage.shown}")
        return study

    def queue(self, settings: Sequence[Setting], seeds: Sequence[int]) -> None:
        """Queue every setting with every seed that the study does not have yet: a grid."""
        with self.storage.told(), self.storage.exclusive():
            known = [facts_of(trial).get("queued") for trial in self._trials()]
            # all settings with the first seed, then with the next: half a grid is a whole curve
            for seed in seeds:
                for setting in settings:
                    queued = [*setting.values(), seed]
                    if queued not in known:
                        drawn = {name: setting[name] for name in self._names}
                        queue(self.optuna, drawn, {"seed": seed, "queued": queued})

    # claiming

    def claim(self) -> Claim | None:
        """The next trial to train; None where there is none, now or at all."""
        return self._patiently(self._claim)

    def _claim(self) -> Claim | None:
        with self.storage.exclusive():
            take_back(self.optuna, self.presence, self._trials(TrialState.RUNNING))
            queue_again(self.optuna, self._trials())
            trials = self._trials()
            waiting = any(trial.state == TrialState.WAITING for trial in trials)
            begun = sum(is_over(trial) or trial.state == TrialState.RUNNING for trial in trials)
            if begun >= self.total or (self.is_grid and not waiting):
                return None
            trial = self.optuna.ask(self._distributions)
            facts = facts_of(trial)
            place = place_of(trial.number, self._trials())
            seed = facts.get("seed", self.question.seed + place)
            facts |= {"owner": self.presence.owner, "place": place, "seed": seed}
            trial.set_user_attr("zetamix", facts)
        self._open[trial.number] = trial
        return Claim(trial.number, place, self.question.space.setting(trial.params), seed)

    # training

    def report(self, number: int, curve: Mapping[int, float]) -> Verdict:
        """Note the measure by epoch of a trial under way, and say what is to become of it."""
        with self._turn:
            trial = self._open.get(number)
            return "lost" if trial is None else self._patiently(lambda: self._report(trial, curve))

    def _report(self, trial: optuna.Trial, curve: Mapping[int, float]) -> Verdict:
        known = self._frozen(trial.number)
        new = {epoch: value for epoch, value in curve.items() if _is_new(epoch, value, known)}
        try:
            for epoch, value in new.items():
                trial.report(value, epoch)
        except RuntimeError:
            known = self._frozen(trial.number)
            if not known.state.is_finished():
                raise
        if known.state.is_finished():
            # another command took us for dead; what we did is on disk and no other loses by it
            self._open.pop(trial.number, None)
            return "lost"
        return "prune" if new and trial.should_prune() else "go on"

    def complete(self, number: int, value: float, facts: Mapping[str, Any]) -> None:
        self._end(number, TrialState.COMPLETE, value, facts)

    def prune(self, number: int, facts: Mapping[str, Any]) -> None:
        self._end(number, TrialState.PRUNED, None, facts)

    def diverge(self, number: int, facts: Mapping[str, Any]) -> None:
        """A loss that is not finite is a result: a sampler takes a pruned trial for a bad one."""
        self._end(number, TrialState.PRUNED, None, {**facts, "diverged": True})

    def release(self, number: int) -> None:
        """Give a trial back, to be gone on with by whoever comes next."""
        self._end(number, TrialState.FAIL, None, {"released": True})

    def _end(
        self, number: int, state: TrialState, value: float | None, facts: Mapping[str, Any]
    ) -> None:
        with self._turn:
            trial = self._open.pop(number, None)
            if trial is not None:
                self._patiently(lambda: self._tell(trial, state, value, facts))

    def _tell(
        self,
        trial: optuna.Trial,
        state: TrialState,
        value: float | None,
        facts: Mapping[str, Any],
    ) -> None:
        try:
            if self._frozen(trial.number).state.is_finished():
                # told already before the connection was lost, or given to another command
                return
            trial.set_user_attr("zetamix", {**facts_of(trial), **facts})
            self.optuna.tell(trial, value, state)
        except (RuntimeError, ValueError):
            if not self._frozen(trial.number).state.is_finished():
                raise

    def note_tested(self, setting: Setting) -> None:
        """Remember that a setting was tried on the test split."""
        known = self.tested()
        if setting not in known:
            self._patiently(lambda: self.optuna.set_user_attr("tested", [*known, setting]))

    # looking

    def tested(self) -> list[Setting]:
        """Settings that have been tried on the test split: more than one, and it has chosen too."""
        return list(self._patiently(lambda: self.optuna.user_attrs).get("tested", []))

    def mine(self) -> list[int]:
        """Trials that this command has claimed and not yet told of."""
        return list(self._open)

    def finished(self) -> bool:
        return sum(is_over(trial) for trial in self._patiently(self._trials)) >= self.total

    def trials(self) -> list[Trial]:
        """All that ended, in the order of their places."""
        found = [self._trial(each) for each in self._patiently(self._trials) if is_over(each)]
        return sorted(found, key=lambda trial: trial.number)

    def standing(self, idle: Collection[int] = (), died: int = 0) -> Standing:
        """How far it is.

        idle: trials of ours that no worker is at. died: times that a worker of ours died.
        """
        found = self._patiently(self._trials)
        over = [trial for trial in found if is_over(trial)]
        claimed = [trial for trial in found if trial.state == TrialState.RUNNING]
        return Standing.of(
            [self._trial(trial) for trial in over],
            total=self.total,
            running={t.number: t.last_step or 0 for t in claimed if t.number not in idle},
            claimed=len(claimed),
            spans=[t.duration.total_seconds() for t in over if t.duration is not None],
            lower_is_better=self.question.lower_is_better,
            died=died,
        )

    def _trial(self, trial: FrozenTrial) -> Trial:
        facts, drawn = facts_of(trial), drawn_of(trial)
        state: State = "failed"
        if trial.state == TrialState.COMPLETE:
            state = "complete"
        elif trial.state == TrialState.PRUNED:
            state = "diverged" if facts.get("diverged") else "pruned"
        return Trial(
            number=facts.get("place", trial.number),
            # one that was killed again and again may not even have drawn its values
            setting=self.question.space.setting(drawn) if drawn.keys() >= self._names else {},
            seed=facts.get("seed", 0),
            state=state,
            value=None if state in ("diverged", "failed") else trial.value,
            error=facts.get("error"),
            scores=facts.get("scores", {}),
            curve=dict(sorted(trial.intermediate_values.items())),
            seconds=facts.get("seconds", 0.0),
        )

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.optuna.get_trials(deepcopy=False, states=states or None)

    def _frozen(self, number: int) -> FrozenTrial:
        return next(trial for trial in self._trials() if trial.number == number)

    def _patiently(self, call: Callable[[], Result]) -> Result:
        """Do it, and where the storage is away for a moment, do it again."""
        began = time.monotonic()
        while True:
            try:
                with self.storage.told():
                    return call()
            except StudyError:
                if time.monotonic() - began > PATIENCE:
                    raise
                time.sleep(1.0)


def _is_new(epoch: int, value: float, known: FrozenTrial) -> bool:
    # an area under the curve is NaN where a class has no sample
    return epoch not in known.intermediate_values and value == value
