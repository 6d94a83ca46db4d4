"""The sentences of a comparison report. None claims more than is significant after correction."""

import math
import re
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from zetamix_lab.comparison import Comparison, metric_of
from zetamix_lab.data import Dataset
from zetamix_lab.data.source import CAUTIONS
from zetamix_lab.metrics import METRICS
from zetamix_lab.progress import about, count_epochs
from zetamix_lab.statistics import CONFIDENCE, detectable
from zetamix_lab.text import join, plural, sentence_case
from zetamix_lab.train import Recipe

LEVEL = f"{100 * CONFIDENCE:g} %"
# from this mean improvement on in the last part of training, of so many evaluated epochs at least,
# it counts as not converged
STILL_IMPROVING, LATE, LATE_EPOCHS = 0.005, 1 / 3, 3
# fewer seeds do not tell their spread
ENOUGH_SEEDS = 5
TERMS = {
    "mixup": "blends every sample with one other (the number is α)",
    "cutmix": "pastes a box of one other image",
    "switch": "mixup for half of the batches, CutMix for the others",
    "zeta": "ζ-mixup, blends many samples (the number is γ: the larger, the less)",
    "zetamix": "blends half of the samples with one other and pastes a box into the rest",
    "smoothing": "no mixing, softened labels",
}


def summarise(comparison: Comparison, command: str = "zetamix compare") -> dict[str, str]:
    """The sentences of a comparison by heading: the result, the next step, cautions, details.

    command: the one that made it, which the next step changes.
    """
    found = {"Result": "No run is finished.", "Incomplete": _incomplete(comparison)}
    if comparison.methods:
        metric, cautions = comparison.metric, " ".join(_cautions(comparison))
        training = _convergence(comparison)[1]
        found = {
            "Result": _decision(comparison),
            "Next": _next_step(comparison, command),
            "Caution": cautions,
            "Incomplete": found["Incomplete"],
            "Training": "" if training in cautions else training,
            "Calibration": _calibration(comparison),
            "Metric": f"{metric.title}: {metric.meaning}." if metric.meaning else "",
        }
    return {heading: text for heading, text in found.items() if text}


# the first screen


def _decision(comparison: Comparison) -> str:
    """One sentence: mixing helps, hurts, or neither was shown."""
    methods, metric = comparison.methods, comparison.metric
    if (chance := comparison.at_chance) is not None:
        judged = metric_of(chance.metric)
        return (
            f"No method is significantly better than chance: guessing gives {judged.title} "
            f"{judged.format(chance.value)} with {chance.classes} classes, and on "
            f"{chance.samples:,} test samples it may reach {judged.format(chance.highest)}."
        )
    if len(methods) == 1:
        own = comparison.summary.loc[(methods[0], metric.name)]
        value = metric.format(own["mean"], None if math.isnan(own["sd"]) else own["sd"])
        seeds = plural(len(comparison.finished), "seed")
        name = comparison.name_of(methods[0])
        return f"{name}: {metric.title} {value} over {seeds}, with nothing to compare."
    first = comparison.baselines[0]
    name, tests = comparison.name_of(first), _tested(comparison)
    if not len(tests):
        return f"Not shown: no method has two seeds in common with {name}, which a test needs."
    found = tests[tests["significant"]]
    if not len(found):
        return (
            f"Not shown: no method differs significantly from {name} in {metric.title}. "
            f"{_power(comparison)}"
        )
    better = metric.sign * found["mean"] > 0
    verdicts = [verb for verb, group in (("helps", better), ("hurts", ~better)) if group.any()]
    is_mixing = first.partition(":")[0] == "none"
    subject = f"mixing {join(verdicts)}" if is_mixing else f"compared with {name}"
    epochs = comparison.recipe and comparison.recipe.epochs
    when = f"after {plural(epochs, 'epoch')}, {subject}" if epochs else subject
    tests = [*found[better].itertuples(), *found[~better].itertuples()]
    moves = "; ".join(_move(test, comparison.name_of(test.method)) for test in tests)
    return sentence_case(f"{when}: {moves}.")


def _move(test: Any, name: str) -> str:
    """ "zetamix lowers the error rate by 1.20 points (95 % interval 0.62 to 1.78)" """
    metric, sign = metric_of(test.metric), 1 if test.mean > 0 else -1
    low, high = sorted(sign * end for end in (test.low, test.high))
    change = metric.format_difference(sign * test.mean).lstrip("+")
    return (
        f"{name} {'raises' if sign > 0 else 'lowers'} the {metric.title} by {change} "
        f"({LEVEL} interval {metric.number(low)} to {metric.number(high)})"
    )


def _power(comparison: Comparison) -> str:
    """The difference that these runs would have shown: "5 seeds … could show 1.8 points."""
    tests, metric = _tested(comparison), comparison.metric
    both = (tests["seed_error"] ** 2 + tests["sample_error"].fillna(0) ** 2) ** 0.5
    shown = detectable(both.median(), tests["freedom"].median(), _level(comparison))
    on = f" on {comparison.test_size:,} test samples" if comparison.test_size else ""
    seeds = plural(int(tests["n"].max()), "seed")
    if metric.percent and shown >= 1:
        return f"{seeds}{on} are too few to show any difference."
    if shown == 0:
        return f"{seeds}{on} do not differ, so what they could show is not known."
    return f"{seeds}{on} could show {metric.format_difference(shown).lstrip('+')}."


def _tested(comparison: Comparison) -> Any:
    """The tests of the primary metric against the first baseline."""
    tests = comparison.differences(comparison.baselines[0])
    return tests[tests["p"].notna()]


def _level(comparison: Comparison) -> float:
    """The level of the smallest p-value in Holm's correction."""
    tests = comparison.tests
    family = (tests["baseline"] == comparison.baselines[0]) & tests["p_holm"].notna()
    return (1 - CONFIDENCE) / max(1, int(family.sum()))


def _next_step(comparison: Comparison, command: str) -> str:
    """What to do now, the time that it is expected to take, and the command that does it."""
    methods, seeds = len(comparison.methods), len(comparison.seeds)
    recipe, records = comparison.recipe, comparison.records.values()

    def step(text: str, runs: int, option: str = "", value: int = 0) -> str:
        # neither is known of runs that were made elsewhere
        if not records:
            return f"{text}."
        at_once = fmean(max(1, record.extra.get("concurrent", 1)) for record in records)
        time = about(runs * fmean(record.wall_s for record in records) / at_once)
        again = re.sub(rf" {option}[ =][0-9,]+", "", command) + f" {option} {value}"
        return f"{text} ({time}): {again if option else command}"

    def train_longer(text: str) -> str:
        option = ("--epochs", 2 * recipe.epochs) if recipe else ()
        return step(text, 2 * len(comparison.finished), *option)

    if comparison.missing:
        return step("Finish the comparison by the same command", comparison.missing)
    if comparison.at_chance is not None:
        return train_longer("Look at the data with zetamix check, or train longer")
    if methods == 1:
        return "Add methods to compare with, such as --methods none,zetamix."
    if _convergence(comparison)[0]:
        return train_longer("Train longer, as training had not converged")
    if seeds < ENOUGH_SEEDS:
        runs = (ENOUGH_SEEDS - seeds) * methods
        return step(f"Train at least {ENOUGH_SEEDS} seeds", runs, "--seeds", ENOUGH_SEEDS)
    tests, first = _tested(comparison), comparison.baselines[0]
    gains = comparison.metric.sign * tests["mean"]
    if (tests["significant"] & (gains > 0)).any():
        best = comparison.name_of(tests.loc[gains[tests["significant"]].idxmax(), "method"])
        where = ": its trained models are in the folder runs (load_model)" if recipe else ""
        return f"Use {best}{where}."
    if tests["significant"].any() or not (gains > 0).any():
        if first.partition(":")[0] != "none":
            return f"Keep {comparison.name_of(first)}: no method is ahead of it."
        return train_longer("Mixing needs long training: try more epochs")
    return (
        "A smaller difference takes a new comparison with more seeds or test samples: to add seeds "
        "until a difference is significant makes false claims."
    )


def _cautions(comparison: Comparison) -> list[str]:
    """Reasons to doubt the result: leaks in the data, few seeds, training that had not ended."""
    notes = () if comparison.dataset is None else comparison.dataset.notes
    texts = [f"{note}." for note in notes if note.startswith(CAUTIONS)]
    if len(comparison.methods) < 2:
        return texts
    metric = comparison.metric
    if len(comparison.seeds) < ENOUGH_SEEDS:
        texts.append(f"Fewer than {ENOUGH_SEEDS} seeds do not tell how much seeds differ.")
    if _tested(comparison)["sample_error"].isna().any():
        texts.append(
            f"The intervals of {metric.title} are for new seeds on the same test "
            "samples: how much other samples would change is not known."
        )
    if metric.name not in METRICS:
        way = "More" if metric.sign > 0 else "Less"
        texts.append(f"{way} {metric.title} is taken to be better, by its name.")
    improving, text = _convergence(comparison)
    return texts if improving is False else [*texts, text]


def describe_terms(comparison: Comparison) -> list[str]:
    """What the names of a table mean, and how long the methods mix."""
    terms, name_of = list[str](), comparison.name_of
    # what others call by these names may be something else
    for kind, term in TERMS.items() if comparison.given is None else ():
        if own := [name_of(m) for m in comparison.methods if m.partition(":")[0] == kind]:
            terms.append(f"{join(own)}: {term}")
    notes = ["; ".join(terms)] if terms else []
    if "nll_scaled" in comparison.tested:
        notes.append("(T): after temperature scaling on the validation split")
    mix = [
        f"{join([*map(name_of, own)])} in "
        f"{'all' if share == 1 else f'the first {100 * share:g} %'} of training"
        for share, own in comparison.until.items()
    ]
    how = ", but do not mix equally long: " if len(mix) > 1 else "; they mix: " if mix else ""
    # of training that is not ours it is not known
    if comparison.recipe is not None:
        notes.append(f"Methods share data, splits, weights at the start and recipe{how}{join(mix)}")
    elif mix:
        notes.append(f"Methods mix: {join(mix)}")
    return [f"{note}." for note in notes]


# paragraphs


def describe_recipe(dataset: Dataset, recipe: Recipe) -> str:
    """What every run is trained on, and how."""
    return (
        f"{len(dataset.train):,} training and {len(dataset.splits['test']):,} test samples, "
        f"{dataset.num_classes} classes, {' × '.join(map(str, dataset.shape))}; {recipe.model} "
        f"{recipe.start}, {plural(recipe.epochs, 'epoch')}, batch size {recipe.batch_size}, "
        f"{recipe.optimisation}, augmentation: {recipe.augmentation}"
    )


def _convergence(comparison: Comparison) -> tuple[bool | None, str]:
    """Whether runs were still improving when training ended, None if not known; and a sentence."""
    if comparison.missing or comparison.dataset is None:
        return False, ""
    has_val = all("val" in curve[-1] for curve in comparison.curves.values() if curve)
    metric, split = comparison.metric, "val" if has_val else "test"
    values = comparison.curve(split, metric.name)
    late = values[-max(LATE_EPOCHS, round(LATE * len(values))) :]
    late = late.loc[:, np.isfinite(late).all()]
    if len(values) <= LATE_EPOCHS or late.empty:
        return None, "Too few epochs were evaluated to tell whether training had converged."
    title = f"towards the end, {'validation' if has_val else 'test'} {metric.title}"
    # of a line fitted to each run
    slopes = np.polyfit(late.index, late, 1)[0] * (late.index[-1] - late.index[0])
    by_method = pd.Series(metric.sign * slopes, late.columns).groupby(level=0, sort=False)
    gains = by_method.mean()
    improving = [
        f"{comparison.name_of(label)} ({metric.format_difference(metric.sign * gain)})"
        for label, gain in gains[(gains >= STILL_IMPROVING) & (by_method.min() > 0)].items()
    ]
    if improving:
        return True, (
            "Training had not converged, so methods may rank differently after more epochs: "
            f"{title} still improved for {join(improving)}."
        )
    if comparison.at_chance is not None:
        # a flat curve at chance level means that learning has not started
        return False, "Convergence cannot be judged, because no method is better than chance."
    change = metric.format_difference(metric.sign * gains.max())
    if gains.max() < STILL_IMPROVING:
        return False, f"Training had converged: {title} changed by at most {change}."
    return False, (
        f"Whether training had converged is unclear: {title} changed by up to {change} on "
        "average, but did not improve in every seed."
    )


def _calibration(comparison: Comparison) -> str:
    """Why NLL and ECE are scaled, or are not."""
    # meaningless if nothing was learned
    if comparison.at_chance is not None or "nll" not in comparison.recorded:
        return ""
    verdict = "go by scores after temperature scaling on the validation split"
    if "nll_scaled" not in comparison.tested:
        verdict = "allow no verdict: not every run has a temperature for scaling"
    soft = "Training on soft labels makes networks underconfident by design"
    return f"{soft}, so NLL and ECE {verdict}."


def _incomplete(comparison: Comparison) -> str:
    if not (missing := comparison.missing):
        return ""
    finished = len(comparison.finished)
    text = f"{finished} of {finished + missing} runs are finished."
    epochs = comparison.recipe.epochs if comparison.recipe else 0
    names = [
        f"{comparison.name_of(method)} seed {seed} after {count_epochs(reached, epochs)}"
        for (method, seed), reached in comparison.unfinished.items()
    ]
    text += f" In progress: {join(names)}." if names else ""
    failures = comparison.failures.items()
    for reason in dict.fromkeys(comparison.failures.values()):
        runs = [
            f"{comparison.name_of(m)} seed {seed}" for (m, seed), own in failures if own == reason
        ]
        text += f" {join(runs)} failed: {reason}"
    return text
