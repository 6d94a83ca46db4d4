"""Tries of a trial: which of them count, and which trials are begun again."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from zetamix.experiments.tune.presence import Presence
from zetamix.experiments.tune.sampler import facts_of

# times that a trial is begun again after its command was killed, before it is given up
MOST_TRIES = 3


def queue(study: optuna.Study, drawn: Mapping[str, Any], facts: dict[str, Any]) -> None:
    """Leave a trial to whoever claims next, with its values and what we note down about it."""
    study.enqueue_trial(dict(drawn), user_attrs={"zetamix": facts})


def take_back(study: optuna.Study, presence: Presence, running: Iterable[FrozenTrial]) -> None:
    """Give up trials of commands that are gone."""
    for trial in running:
        owner = facts_of(trial).get("owner")
        # one without an owner was killed while claiming, for nobody else is doing so now
        if owner is None or presence.is_gone(owner):
            # unless it has just come back with a result
            with suppress(RuntimeError):
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def queue_again(study: optuna.Study, trials: Sequence[FrozenTrial]) -> None:
    """Queue trials that were cut off.

    They are found by what is missing, so that none is lost where a process is killed between
    giving one up and queueing it.
    """
    again = {facts_of(trial).get("try_after") for trial in trials}
    for trial in trials:
        if trial.state != TrialState.FAIL or trial.number in again or is_over(trial):
            continue
        facts = facts_of(trial)
        tries = facts.get("tries", 0) + (not facts.get("released", False))
        kept = {name: facts[name] for name in facts if name in ("seed", "queued")}
        queue(study, drawn_of(trial), {**kept, "tries": tries, "try_after": trial.number})


def drawn_of(trial: FrozenTrial) -> dict[str, Any]:
    """The values of a trial, where they are only queued too."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}


def is_over(trial: FrozenTrial) -> bool:
    """Whether a trial counts as done: one that was cut off will be tried again, and does not."""
    if trial.state == TrialState.FAIL:
        facts = facts_of(trial)
        return facts.get("tries", 0) >= MOST_TRIES and not facts.get("released", False)
    return trial.state.is_finished()
