"""The objective of a study: train one model with the values of a trial, and return its score."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.exceptions import UpdateFinishedTrialError

from zetamix.experiments.tune.spec import StudyError
from zetamix.experiments.tune.study import WorkerSettings, index_of, lock_name
from zetamix.measure.statistics import standard_error
from zetamix.results.search_space import Setting
from zetamix.train import Progress, Run, train
from zetamix.train.run_folder import LOCK, hold

# seconds to wait for the folder of a trial whose process is about to exit
ORPHAN_SECONDS = 60.0


class TrialStopped(Exception):
    """A trial without a result: interrupted, surplus, out of memory, or taken over elsewhere."""


@dataclass
class Objective:
    """Trains one run per trial; threads of one process may share it."""

    settings: WorkerSettings
    folder: Path
    """Folder of the trials; every trial keeps its checkpoint there until it ends."""
    device: torch.device
    compile: bool
    stop: Callable[[], bool]
    aborted: bool = False
    """Set by an error of one thread; the others save their checkpoints and end."""
    lost: bool = False
    """Whether another process took over a trial of this one."""

    def stopped(self) -> bool:
        return self.aborted or self.stop()

    def __call__(self, trial: optuna.Trial) -> float:
        spec, plan = self.settings.spec, self.settings.plan
        index = index_of(trial.study, trial.number)
        if index >= plan.trials:
            # two workers started the last trial at the same time
            trial.set_user_attr("surplus", True)
            raise TrialStopped
        drawn = {
            name: _suggest(trial, name, distribution)
            for name, distribution in spec.space.distributions().items()
        }
        seed = plan.seeds[index // len(plan.grid)] if plan.grid else spec.seed + index
        trial.set_user_attr("seed", seed)
        path = self.folder / f"{index:04d}"
        try:
            with hold([path], wait=ORPHAN_SECONDS):
                trial.set_user_attr("lock", lock_name(path / LOCK))
                try:
                    return self._train(trial, spec.space.setting(drawn), seed, path)
                finally:
                    # from here on, a free lock does not mean that this process was killed
                    trial.set_user_attr("lock", "")
        except UpdateFinishedTrialError:
            # this process was suspended for longer than the grace period
            self.lost = True
            raise TrialStopped from None
        except (TrialStopped, optuna.TrialPruned):
            raise
        except BaseException:
            self.aborted = True
            raise

    def _train(self, trial: optuna.Trial, setting: Setting, seed: int, path: Path) -> float:
        spec, metric = self.settings.spec, self.settings.spec.metric
        run = Run(
            spec.trial_dataset,
            spec.space.method(setting),
            spec.space.recipe(setting, spec.recipe),
            seed=seed,
            out=path,
            device=self.device,
            compile=self.compile,
            save_every=self.settings.save_every,
        )
        reporter = _Reporter(trial, metric)
        result = train([run], watch=reporter, stop=self.stopped)
        failure, record = result.failures.get(run), run.record
        if record is None and failure is None and not reporter.pruned:
            trial.set_user_attr("interrupted", True)
            raise TrialStopped
        if failure is not None and failure.kind in ("folder", "data"):
            # all trials would fail for the same reason
            raise StudyError(failure.message)
        reporter.report(run)
        # 45 MB for a ResNet-18, 9 GB for 200 trials
        run.folder.remove_model()
        seconds = run.seconds if record is None else record.wall_s
        trial.set_user_attr("seconds", round(seconds, 2))
        if record is not None and math.isfinite(record.last[metric]):
            trial.set_user_attr("scores", record.last)
            if not spec.dataset.multi_label:
                error = standard_error(metric, record.confusion)
                trial.set_user_attr("standard_error", error)
            return record.last[metric]
        if failure is not None and failure.kind == "out of memory":
            trial.set_user_attr("failure", failure.message)
            raise TrialStopped
        if not reporter.pruned:
            # the sampler counts a pruned trial as bad and ignores a failed one
            trial.set_user_attr("diverged", True)
        raise optuna.TrialPruned


class _Reporter:
    """Reports every evaluated epoch to Optuna, and cancels the run if Optuna prunes the trial."""

    def __init__(self, trial: optuna.Trial, metric: str) -> None:
        self.trial, self.metric = trial, metric
        self.pruned = False
        self._reported: set[int] = set()

    def __call__(self, progress: Progress) -> None:
        if progress.line is not None and "test" in progress.line:
            self.report(progress.run)
            # after the last epoch there is nothing to cancel
            if progress.epoch < progress.run.recipe.epochs and self.trial.should_prune():
                self.pruned = True
                progress.run.cancel()

    def report(self, run: Run) -> None:
        """Report the epochs so far; those of an earlier attempt are read from its folder."""
        for line in run.folder.read_curve():
            epoch, value = line["epoch"], line.get("test", {}).get(self.metric, math.nan)
            # the AUC is NaN if a class has no sample
            if epoch not in self._reported and math.isfinite(value):
                self._reported.add(epoch)
                self.trial.report(value, epoch)


def _suggest(trial: optuna.Trial, name: str, distribution: Any) -> Any:
    """The value of a parameter, by the method of its kind of distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    is_int = isinstance(distribution, IntDistribution)
    suggest: Any = trial.suggest_int if is_int else trial.suggest_float
    options = {"step": distribution.step, "log": distribution.log}
    return suggest(name, distribution.low, distribution.high, **options)
