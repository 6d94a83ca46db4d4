"""The findings of a search as sentences."""

from zetamix.measure.statistics import Difference
from zetamix.metrics import METRICS, chance_level
from zetamix.results.search_space import format_setting
from zetamix.results.tuning import (
    CHOSEN,
    HELD_OUT,
    PRUNE_PERCENT,
    PRUNE_STARTUP_TRIALS,
    ROUNDING,
    SettingResult,
    TestResult,
    Tuning,
    all_tie,
    by_setting,
    differences,
)
from zetamix.results.tuning_analysis import Flatness, at_gammas, flatness
from zetamix.text import plural

DEFAULT_GAMMA = 2.8
# the best γ is at the edge if it is nearer to an end of the range than this fraction of it
EDGE = 0.05
# with fewer different γ the position of the best one is mostly chance
MIN_SHAPE_GAMMAS = 10


def summarise_tuning(tuning: Tuning) -> list[tuple[str, str]]:
    """The main findings, a heading and a sentence or two each."""
    chosen = tuning.chosen
    if chosen is None:
        return [("Summary", f"No trial is complete. {_counts(tuning)}.")]
    lead = _tie(tuning, chosen) if all_tie(tuning.trials) else _best(tuning, chosen)
    if tuning.tested:
        lead.append(("Test", _test(tuning)))
    elif tuning.test_failures:
        lead.append(("Test", f"The final test failed. {' '.join(tuning.test_failures)}"))
    elif not tuning.finished:
        lead.append(("Unfinished", f"{_counts(tuning)}. The test split has not been read."))
    return lead


def _tie(tuning: Tuning, chosen: SettingResult) -> list[tuple[str, str]]:
    """No conclusion can be drawn if all complete trials have the same value."""
    spec = tuning.spec
    metric = METRICS[spec.metric]
    text = (
        f"{_counts(tuning)}. All complete trials have the same validation "
        f"{metric.title}, {metric.format(chosen.value)}, so nothing follows about the searched "
        f"parameters.{_chance(tuning, chosen)}"
    )
    same_loss = len({result.nll for result in by_setting(tuning.trials)}) == 1
    rule = "the first of the tied settings" if same_loss else "the tied setting of lowest loss"
    return [("Tie", text), ("Chosen", f"{_sentence(format_setting(chosen.setting))}, {rule}.")]


def _best(tuning: Tuning, chosen: SettingResult) -> list[tuple[str, str]]:
    spec = tuning.spec
    lead = [("Chosen", _score(tuning, chosen))]
    flat = flatness(tuning.trials, spec.metric)
    if flat is not None and spec.space.gamma is not None:
        lead.append(("Flatness", _flatness(tuning, flat)))
    return lead


def _score(tuning: Tuning, chosen: SettingResult) -> str:
    spec = tuning.spec
    metric, size = METRICS[spec.metric], len(spec.dataset.splits["val"])
    error, sd = chosen.trials[0].standard_error, chosen.summary.sd
    value = metric.format(chosen.value)
    if sd is not None:
        value = f"{metric.format(chosen.value, sd)} (± standard deviation, {chosen.n} seeds)"
    elif error is not None:
        value = f"{metric.format(chosen.value, error)} (± standard error, {size:,} samples)"
    return (
        f"{_sentence(format_setting(chosen.setting))}: validation {metric.title} {value}, the best "
        f"of {_counts(tuning)}.{_chance(tuning, chosen)}"
    )


def _counts(tuning: Tuning) -> str:
    """The number of trials by state."""
    states = [trial.state for trial in tuning.trials]
    parts = [plural(states.count("complete"), "complete trial")]
    parts += [
        f"{states.count(state)} {state}"
        for state in ("pruned", "diverged", "failed")
        if state in states
    ]
    left = tuning.total - len(states)
    return ", ".join([*parts, f"{left} to go"] if left > 0 else parts)


def _chance(tuning: Tuning, chosen: SettingResult) -> str:
    """A sentence if the chosen setting is no better than chance."""
    spec = tuning.spec
    counts = spec.dataset.splits["val"].counts()
    level = chance_level(spec.metric, counts)
    if level is None or METRICS[spec.metric].sign * (chosen.value - level) > ROUNDING:
        return ""
    return " That is no better than the majority-class baseline."


def _flatness(tuning: Tuning, flat: Flatness) -> str:
    spec = tuning.spec
    unit = "γ of the grid" if flat.over_seeds else "complete trials"
    size = len(spec.dataset.splits["val"])
    source = "over seeds" if flat.over_seeds else f"over {size:,} samples, without that of seeds"
    difference = METRICS[spec.metric].format_difference(flat.margin).lstrip("+")
    margin = f"one standard error ({difference}, {source})"
    if flat.within == 1:
        text = f"None of the other {flat.total - 1} {unit} is within {margin} of the best."
    else:
        text = (
            f"{flat.within} of {flat.total} {unit} are within {margin} of the best, with γ from "
            f"{flat.low:g} to {flat.high:g}. {_width(tuning, flat)}"
        )
        if flat.low <= DEFAULT_GAMMA <= flat.high:
            text += f" The default, {DEFAULT_GAMMA}, is in this range."
    return text + _edge(tuning, flat)


def _width(tuning: Tuning, flat: Flatness) -> str:
    gamma, count = tuning.spec.space.gamma, len(at_gammas(tuning.trials))
    if count < MIN_SHAPE_GAMMAS:
        return f"{count} values of γ are too few to tell how flat the optimum is."
    share = 0.0 if gamma is None else gamma.share(flat.low, flat.high)
    width = "flat" if share >= 0.5 else "broad" if share >= 0.2 else "narrow"
    return f"The optimum is {width}: {100 * share:.0f} % of the searched range."


def _edge(tuning: Tuning, flat: Flatness) -> str:
    """A sentence if the best γ is at an end of the range, so that a better one may be outside.

    Among few γ the best is often at an end by chance: there it must stand out, in a grid.
    """
    gamma = tuning.spec.space.gamma
    if gamma is None or gamma.span is None or flat.ties > 1:
        return ""
    stands_out = bool(gamma.values) and flat.within == 1
    if len(at_gammas(tuning.trials)) < MIN_SHAPE_GAMMAS and not stands_out:
        return ""
    (low, high), margin = gamma.span, 1e-9 if gamma.values else EDGE
    for end, distance in ((low, gamma.share(low, flat.best)), (high, gamma.share(flat.best, high))):
        if distance <= margin:
            return f" The best γ is at the edge of the search, {end:g}: extend the range."
    return ""


def _test(tuning: Tuning) -> str:
    metric, n = METRICS[tuning.spec.metric], len(tuning.tested[0].records)
    values = ", ".join(f"{_name(result)} {_mean(result, metric.name)}" for result in tuning.tested)
    claims = [_claim(difference) for difference in differences(tuning.tested, metric.name)]
    text = f"Test {metric.title} over {plural(n, 'new seed')}: {values}. {' '.join(claims)}"
    if tuning.settings_tested > 1:
        text += (
            f" The test split has been used for {tuning.settings_tested} chosen settings of this "
            "study, which makes it a weaker test."
        )
    return text


def _name(result: TestResult) -> str:
    candidate = result.candidate
    if candidate.name == CHOSEN:
        return f"chosen setting ({candidate.method})"
    return "no mixing" if candidate.name == "none" else candidate.name


def _mean(result: TestResult, metric: str) -> str:
    summary = result.summary(metric)
    return METRICS[metric].format(summary.mean, summary.sd)


def _claim(difference: Difference) -> str:
    """The claim that a difference supports."""
    metric = METRICS[difference.metric]
    baseline = "no mixing" if difference.baseline == "none" else difference.baseline
    change = metric.format_difference(difference.mean)
    if difference.low is None or difference.high is None or difference.p_holm is None:
        return f"The difference to {baseline} is {change}; one seed supports no claim."
    interval = f"{metric.signed(difference.low)} to {metric.format_difference(difference.high)}"
    text = f"The difference to {baseline} is {change} (95 % interval {interval}, Holm-corrected "
    text += f"p = {difference.p_holm:.2g}): "
    if not difference.significant:
        return f"{text}not significant."
    return text + f"significantly {'better' if metric.sign * difference.mean > 0 else 'worse'}."


def describe_method(tuning: Tuning) -> list[str]:
    """How the search was done, for the end of a report."""
    recipe = tuning.spec.recipe
    text = (
        f"Recipe: {recipe.source}; {recipe.model}, {recipe.epochs} epochs, batch size "
        f"{recipe.batch_size}, learning rate {recipe.lr:g} ({recipe.schedule}), weight decay "
        f"{recipe.weight_decay:g}, augmentation {recipe.augmentation}. Search space: "
        f"{tuning.spec.space.text}. Trained by {tuning.description}."
    )
    notes = [f"Data: {note}." for note in tuning.spec.dataset.notes]
    return [_splits(tuning), _sampling(tuning), text, *notes]


def _splits(tuning: Tuning) -> str:
    spec = tuning.spec
    sizes = {name: f"{len(split):,}" for name, split in spec.dataset.splits.items()}
    text = f"Every model was trained on {sizes['train']} samples and scored by "
    text += (
        f"{METRICS[spec.metric].title} after its last epoch on the {sizes['val']} samples of the "
    )
    text += "validation split"
    if spec.held_out:
        text += f" ({100 * HELD_OUT:.0f} % of the training split, held out)"
    if "test" not in sizes:
        return f"{text}. There is no test split for a final test."
    return f"{text}. The {sizes['test']} test samples are not read before a setting is chosen."


def _sampling(tuning: Tuning) -> str:
    if tuning.sampler == "grid":
        seeds = sorted({trial.seed for trial in tuning.trials})
        word = "seed" if len(seeds) == 1 else "seeds"
        return f"Every setting of the grid was trained with {word} {', '.join(map(str, seeds))}."
    drawn = "at random"
    if tuning.sampler == "tpe":
        drawn = "by Optuna's tree-structured Parzen estimator, the first ten at random"
    text = f"Settings were drawn {drawn}, with sampler seed {tuning.spec.seed}; trial n was "
    text += f"trained with seed {tuning.spec.seed} + n."
    if tuning.prune:
        text += (
            f" From a third of its epochs on, a trial was pruned if {PRUNE_PERCENT:.0f} % of the "
            f"others were better at the same epoch, once {PRUNE_STARTUP_TRIALS} were complete."
        )
    return text


def _sentence(text: str) -> str:
    """The text with a capital letter; γ keeps its case."""
    return text[:1].upper() + text[1:] if text[:1].isascii() else text
