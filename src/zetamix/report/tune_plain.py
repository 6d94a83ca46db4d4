"""Trials and tests as CSV for programs: plain names, shares as shares, six digits."""

import csv
import io
import math
from collections.abc import Iterable, Sequence

from zetamix.experiments.tune.run import Tuning
from zetamix.results.search_space import Value

# beside the measure that was searched by
TEST_METRICS = ("error", "balanced_accuracy", "f1_macro", "auc", "nll", "ece")


def trials_csv(tuning: Tuning) -> str:
    """A line for each trial, in the order in which they were begun."""
    question = tuning.question
    names = [each.name for each in question.space.parameters]
    measure = f"{question.judge}_{question.metric}"
    heads = ["trial", *names, "seed", measure, f"{measure}_se", "state", "seconds"]
    return _csv(
        heads,
        (
            [trial.number]
            + [trial.setting.get(name) for name in names]
            + [trial.seed, trial.value, trial.error, trial.state, trial.seconds]
            for trial in tuning.trials
        ),
    )


def results_csv(tuning: Tuning) -> str:
    """A line for each contender on the test split: means and standard deviations over seeds."""
    metrics = told_metrics(tuning.question.metric)
    heads = ["name", "method"]
    heads += [head for each in metrics for head in (f"test_{each}", f"test_{each}_sd")]
    lines = []
    for tested in tuning.tested:
        line: list[Value | None] = [tested.contender.name, tested.contender.method]
        for each in metrics:
            found = tested.estimate(each)
            line += [found.value, found.spread]
        lines.append([*line, len(tested.records)])
    return _csv([*heads, "seeds"], lines)


def told_metrics(metric: str) -> list[str]:
    """What is told of the test split: first the measure that was searched by."""
    return [metric, *(name for name in TEST_METRICS if name != metric)]


def _csv(heads: Sequence[str], lines: Iterable[Sequence[Value | None]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_plain(value) for value in line] for line in lines)
    return file.getvalue()


def _plain(value: Value | None) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
