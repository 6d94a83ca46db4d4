"""The report of a search: figures, tables, one page, and files for programs."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from zetamix.atomic_io import json_safe, write_json, write_text
from zetamix.gamma import GAMMA_MIN
from zetamix.methods import display_name
from zetamix.metrics import METRICS, MULTI_LABEL_METRICS, Metric
from zetamix.report import Cell, Column, Picture, Section, Table, drawing, render_page, series_style
from zetamix.report.compare import difference_cells, difference_note, metric_cell
from zetamix.report.compare_text import LEVEL
from zetamix.report.figure import GREY
from zetamix.report.page import Block
from zetamix.report.tune_text import summarise_tuning
from zetamix.results.search_space import TITLES, Parameter, Setting, format_setting
from zetamix.results.tuning import (
    CHOSEN,
    HELD_OUT,
    PRUNE_PERCENT,
    Candidate,
    Trial,
    Tuning,
    differences,
)
from zetamix.results.tuning_analysis import (
    CurvePoint,
    curve,
    flatness,
    has_seeds,
    importance,
    optuna_study,
    trend,
)
from zetamix.text import plural

SCHEMA = "zetamix/tune/2"
# the page shows the best trials; trials.csv has all
SHOWN_TRIALS = 30
TEST_METRICS = ("error", "balanced_accuracy", "f1_macro", "auc", "nll", "ece")
# the axis shows at least this many standard errors from the best
SHOWN_ERRORS = 3.0


def write_report(tuning: Tuning, out: Path, machine: Mapping[str, str]) -> Path:
    """Write `report.html`, `results.json`, tables and `figures/`; the path of the page.

    machine: where it was trained, from `zetamix.provenance.machine_info`.
    """
    shares = importance(tuning.trials, tuning.spec.space.searched, tuning.spec.seed)
    pictures = draw_all(tuning, shares)
    for picture in pictures.values():
        picture.save(out / "figures")
    write_text(out / "trials.csv", trials_csv(tuning))
    results = {"machine": dict(machine), **as_dict(tuning, shares)}
    write_json(out / "results.json", json_safe(results))
    page = out / "report.html"
    write_text(page, _page(tuning, pictures, shares, machine))
    return page


def as_dict(tuning: Tuning, shares: Mapping[str, float] | str) -> dict[str, Any]:
    """The content of the page as JSON."""
    chosen, metric = tuning.chosen, tuning.spec.metric
    flat = flatness(tuning.trials, metric)
    points = curve(tuning.trials) if has_seeds(tuning.trials) else trend(tuning.trials)
    return {
        "schema": SCHEMA,
        "study": tuning.spec.as_dict(),
        "notes": list(tuning.spec.dataset.notes),
        "sampler": tuning.plan.sampler,
        "pruned": tuning.plan.prune,
        "requested_trials": tuning.plan.trials,
        "finished": tuning.finished,
        "summary": dict(summarise_tuning(tuning)),
        "chosen": None
        if chosen is None
        else {"setting": chosen.setting, "value": chosen.value, "n": chosen.n},
        "flatness": None if flat is None else vars(flat),
        "importance": None if isinstance(shares, str) else dict(shares),
        "curve": [vars(point) for point in points],
        "trials": [vars(trial) for trial in tuning.trials],
        "test": [
            {
                "name": candidate.name,
                "method": candidate.method,
                "recipe": candidate.recipe.as_dict(),
                "records": [record.as_dict() for record in candidate.records],
            }
            for candidate in tuning.tested
        ],
        "differences": [vars(difference) for difference in differences(tuning.tested, metric)],
    }


def _page(
    tuning: Tuning,
    pictures: Mapping[str, Picture],
    shares: Mapping[str, float] | str,
    machine: Mapping[str, str],
) -> str:
    sections: list[Section] = []
    if tuning.tested:
        sections.append(Section("Test results", final_test_tables(tuning)))
    for name, title in (("gamma", "Score against γ"), ("parallel", "All parameters")):
        if name in pictures:
            sections.append(Section(title, [pictures[name]]))
    if len(tuning.spec.space.searched) > 1:
        block: Block = shares if isinstance(shares, str) else pictures["importance"]
        sections.append(Section("Parameter importance", [block]))
    rest = sum(trial.state == "complete" for trial in tuning.trials) - SHOWN_TRIALS
    more = ["All trials are in trials.csv."] if rest > 0 else []
    sections.append(Section("Trials", [trial_table(tuning), *more]))
    notes = [f"Data: {note}." for note in tuning.spec.dataset.notes]
    sections.append(Section("Method", [method_table(tuning), *notes]))
    title = f"{tuning.spec.dataset.name}: which γ for ζ-mixup?"
    if not tuning.finished:
        title += " (unfinished)"
    return render_page(title, sections, machine=machine, lead=summarise_tuning(tuning))


# tables


def final_test_tables(tuning: Tuning) -> list[Table]:
    """The final test: all metrics, and differences of the chosen setting from the baselines."""
    return [results_table(tuning), difference_table(tuning)]


def difference_table(tuning: Tuning) -> Table:
    """The chosen setting minus every baseline, with intervals and p-values."""
    metric = METRICS[tuning.spec.metric]
    rows = [
        [Cell(display_name(difference.baseline)), *difference_cells(difference)]
        for difference in differences(tuning.tested, metric.name)
    ]
    heads = ["baseline", f"chosen setting minus baseline ({LEVEL})", "Holm-corrected p"]
    return Table(heads, rows, f"Differences in {metric.title}", [difference_note(metric)])


def results_table(tuning: Tuning) -> Table:
    """The chosen setting and the baselines on the test split."""
    first = tuning.spec.metric
    others = MULTI_LABEL_METRICS if tuning.spec.dataset.multi_label else TEST_METRICS
    metrics = [METRICS[name] for name in dict.fromkeys((first, *others))]
    rows: list[list[Cell | str | int | float | None]] = []
    for candidate in tuning.tested:
        summaries = [(metric, candidate.summary(metric.name)) for metric in metrics]
        cells = [metric_cell(metric, summary.mean, summary.sd) for metric, summary in summaries]
        rows.append([_candidate_name(candidate), *cells, len(candidate.records)])
    notes = [
        "Mean ± standard deviation over seeds that no trial used, after the last epoch. All models "
        "were trained on the training split, without the validation split."
    ]
    recipe_space = tuning.spec.space.for_baseline("none")
    if recipe_space.parameters:
        fields = [parameter.name for parameter in recipe_space.parameters]
        found = [
            f"{_candidate_name(c)} with {format_setting({f: getattr(c.recipe, f) for f in fields})}"
            for c in tuning.tested
        ]
        how = "Each was chosen by its own search" if recipe_space.searched else "Recipe"
        notes.append(f"{how}: {'; '.join(found)}.")
    heads = [Column(m.heading, f"{m.title}; {m.better}") for m in metrics]
    return Table(
        ["method", *heads, "seeds"], rows, f"{tuning.spec.dataset.name}, test split", notes
    )


def _candidate_name(candidate: Candidate) -> str:
    if candidate.name == CHOSEN:
        return f"chosen: {candidate.method}"
    return display_name(candidate.method)


def trial_table(tuning: Tuning) -> Table:
    """The best complete trials with their settings."""
    spec, metric = tuning.spec, METRICS[tuning.spec.metric]
    complete = [t for t in tuning.trials if t.state == "complete" and t.value is not None]
    complete.sort(key=lambda trial: (-metric.sign * (trial.value or 0.0), trial.number))
    names = [parameter.name for parameter in spec.space.parameters]
    rows: list[list[Cell | str | int | float | None]] = []
    for trial in complete[:SHOWN_TRIALS]:
        value = metric_cell(metric, trial.value or 0.0, trial.standard_error)
        settings = [trial.setting.get(name) for name in names]
        rows.append(
            [Cell(trial.number), *settings, trial.seed, value, Cell(trial.seconds, digits=1)]
        )
    columns: list[Column | str] = [
        "trial",
        *(TITLES.get(name, name) for name in names),
        "seed",
        Column(f"validation {metric.axis_label}", "± standard error over samples"),
        "seconds",
    ]
    all_shown = len(complete) <= SHOWN_TRIALS
    caption = "Complete trials" if all_shown else f"The best {SHOWN_TRIALS} trials"
    return Table(columns, rows, caption)


def method_table(tuning: Tuning) -> Table:
    """The settings of the search."""
    spec, recipe = tuning.spec, tuning.spec.recipe
    sizes = {name: f"{len(split):,} samples" for name, split in spec.dataset.splits.items()}
    if spec.held_out:
        sizes["val"] += f", {100 * HELD_OUT:.0f} % of the training split, held out"
    sampling = f"{tuning.plan.sampler}, seed {spec.seed}; trial n trains with seed {spec.seed} + n"
    if tuning.plan.sampler == "grid":
        seeds = sorted({trial.seed for trial in tuning.trials})
        sampling = f"grid, every setting with seeds {', '.join(map(str, seeds))}"
    pruning = "none"
    if tuning.plan.prune:
        pruning = f"after a third of the epochs, if {PRUNE_PERCENT:.0f} % of the trials are better"
    baselines = {}
    if (same := spec.space.for_baseline("none")).searched:
        baselines["baselines"] = f"the same number of trials for each, over {same.text}"
    rows = {
        "training split": sizes["train"],
        "validation split": sizes["val"],
        "test split": f"{sizes.get('test', 'none')}, not used before a setting is chosen",
        "score": f"validation {METRICS[spec.metric].title} after the last epoch",
        "search space": spec.space.text,
        **baselines,
        "sampler": sampling,
        "pruning": pruning,
        "recipe": f"{recipe.origin}; {recipe.model}, {recipe.start}, {recipe.epochs} epochs, batch "
        f"size {recipe.batch_size}, {recipe.optimisation}, augmentation: {recipe.augmentation}",
        "trained by": tuning.description,
    }
    return Table(["setting", "value"], [list(row) for row in rows.items()])


def trials_csv(tuning: Tuning) -> str:
    """One line per trial; metrics as fractions, with six digits."""
    names = [parameter.name for parameter in tuning.spec.space.parameters]
    score = f"val_{tuning.spec.metric}"
    heads = ["trial", *names, "seed", score, f"{score}_se", "state", "seconds"]
    rows = []
    for trial in tuning.trials:
        settings = [trial.setting.get(name) for name in names]
        scores = [trial.seed, trial.value, trial.standard_error, trial.state, trial.seconds]
        line = [trial.number, *settings, *scores]
        rows.append([f"{value:.6g}" if isinstance(value, float) else value for value in line])
    return Table(heads, rows).csv()


# figures


def draw_all(tuning: Tuning, shares: Mapping[str, float] | str) -> dict[str, Picture]:
    """All figures for which there is data, by name."""
    spec, chosen = tuning.spec, tuning.chosen
    pictures: list[Picture] = []
    if chosen is not None and "gamma" in chosen.setting:
        gamma = spec.space.gamma
        span = None if gamma is None else gamma.span
        pictures.append(draw_gamma(tuning.trials, spec.metric, chosen=chosen.setting, span=span))
    if chosen is not None and len(spec.space.searched) > 1:
        pictures.append(draw_parallel(tuning.trials, spec.space.searched, spec.metric))
    if not isinstance(shares, str):
        pictures.append(draw_importance(shares))
    return {picture.name: picture for picture in pictures}


def draw_gamma(
    trials: Sequence[Trial],
    metric: str,
    *,
    chosen: Setting | None = None,
    span: tuple[float, float] | None = None,
) -> Picture:
    """The metric against γ: a curve with a band over seeds for a grid, else one point per trial.

    span: the searched range; None shows the range of the trials.
    """
    label = f"validation {METRICS[metric].axis_label}"
    with drawing(6.8, 3.9) as figure:
        axes = figure.subplots()
        draw = _draw_curve if has_seeds(trials) else _draw_trials
        caption = draw(axes, trials, METRICS[metric])
        caption += _draw_near_best(axes, trials, METRICS[metric])
        # a band may extend below 0, but the metric does not; points at 0 are not cut off
        low, high = axes.get_ylim()
        axes.set_ylim(bottom=max(low, -0.04 * high))
        gammas = [trial.gamma for trial in trials if trial.gamma is not None]
        if min([*gammas, *(span or ())], default=math.inf) < GAMMA_MIN + 0.5:
            axes.axvline(GAMMA_MIN, color=GREY, lw=1, ls=":", label=f"GAMMA_MIN = {GAMMA_MIN:.5f}")
            caption += " Dotted: GAMMA_MIN, above which one sample dominates every output."
        if chosen is not None and "gamma" in chosen:
            gamma = float(chosen["gamma"])
            colour = series_style(2)["color"]
            axes.axvline(gamma, color=colour, lw=1, ls="--", label=f"chosen γ = {gamma:g}")
            caption += f" Dashed: the chosen γ, {gamma:g}."
        if span is not None:
            margin = 0.03 * (span[1] - span[0])
            axes.set_xlim(span[0] - margin, span[1] + margin)
        axes.set(xlabel="γ", ylabel=label)
        # inside the axes, markers of the legend would look like trials
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
        )
        alt = f"{label} against γ, {len(gammas)} trials."
        return Picture.of(figure, "gamma", alt=alt, caption=caption)


def _draw_curve(axes: Axes, trials: Sequence[Trial], metric: Metric) -> str:
    points, style = curve(trials), series_style(0)
    _draw_means(axes, points, metric, label="mean", **style)
    x, y = zip(*_points(trials, metric, "complete"), strict=True)
    axes.scatter(x, y, s=9, color=style["color"], alpha=0.35, lw=0, label="one seed")
    counts = sorted({int(point.n) for point in points})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean over {seeds} seeds at {len(points)} values of γ; band: ± 1 standard deviation."


def _draw_trials(axes: Axes, trials: Sequence[Trial], metric: Metric) -> str:
    points, colour = trend(trials), series_style(0)["color"]
    caption = "One point per trial."
    if len({tuple(v for k, v in trial.setting.items() if k != "gamma") for trial in trials}) > 1:
        caption = "One point per trial; all other parameters vary."
    if points:
        _draw_means(axes, points, metric, label="local mean", color=colour)
        caption += " Line and band: local mean ± 1 standard error."
    limit = _axis_limit(trials, metric)
    looks: dict[str, dict[str, Any]] = {
        "complete": {"label": "trial", "color": colour, "marker": "o", "lw": 0},
        "pruned": {"label": "pruned", "facecolors": "none", "edgecolors": GREY, "marker": "s"},
    }
    beyond = 0
    for state, look in looks.items():
        pairs = _points(trials, metric, state)
        inside = [pair for pair in pairs if metric.sign * (pair[1] - limit) >= 0]
        beyond += len(pairs) - len(inside)
        if inside:
            x, y = zip(*inside, strict=True)
            axes.scatter(x, y, s=16, **look)
    if beyond:
        # the local mean may exceed the axis as well
        axes.set_ylim(*((limit, None) if metric.higher_is_better else (None, limit)))
        caption += f" {plural(beyond, 'far worse trial')} outside the axis."
    return caption


def _points(trials: Sequence[Trial], metric: Metric, state: str) -> list[tuple[float, float]]:
    """γ and scaled value of the trials in this state."""
    return [
        (trial.gamma, metric.scale(trial.value))
        for trial in trials
        if trial.state == state and trial.gamma is not None and trial.value is not None
    ]


def _draw_means(axes: Axes, points: Sequence[CurvePoint], metric: Metric, **style: Any) -> None:
    """A line, with a band if there is one."""
    values = [metric.scale(point.value) for point in points]
    axes.plot([point.gamma for point in points], values, **style)
    bands = [(p.gamma, p.value - p.band, p.value + p.band) for p in points if p.band is not None]
    gammas, *ends = zip(*bands, strict=True)
    low, high = (list(map(metric.scale, values)) for values in ends)
    axes.fill_between(gammas, low, high, color=style["color"], alpha=0.15, lw=0)


def _draw_near_best(axes: Axes, trials: Sequence[Trial], metric: Metric) -> str:
    """A band one standard error from the best."""
    flat = flatness(trials, metric.name)
    if flat is None:
        return ""
    ends = (metric.scale(value) for value in (flat.value, flat.value - metric.sign * flat.margin))
    axes.axhspan(*sorted(ends), color=GREY, alpha=0.12, lw=0, zorder=0, label="1 s.e. from best")
    source = "over seeds" if flat.over_seeds else "over samples"
    return f" Grey band: within one standard error, {source}, of the best."


def _axis_limit(trials: Sequence[Trial], metric: Metric) -> float:
    """The worst value that the axis shows: one trial at 60 % would hide differences of 0.1."""
    sign, flat = metric.sign, flatness(trials, metric.name)
    losses = sorted(-sign * value for _, value in _points(trials, metric, "complete"))
    if len(losses) < 8 or flat is None:
        return -sign * math.inf
    # trials within a few standard errors may be as good as the best
    close = metric.scale(-sign * flat.value + SHOWN_ERRORS * flat.margin)
    # Tukey's "far out": three interquartile ranges above the upper quartile
    low, high = losses[len(losses) // 4], losses[-1 - len(losses) // 4]
    inside = [loss for loss in losses if loss <= max(close, high + 3 * (high - low))]
    return -sign * max(close, inside[-1] + 0.1 * (inside[-1] - inside[0]))


def draw_parallel(
    trials: Sequence[Trial],
    parameters: Sequence[Parameter],
    metric: str,
) -> Picture:
    """Optuna's parallel coordinates: every trial as a line through its score and its parameters."""
    from matplotlib import pyplot
    from optuna.visualization.matplotlib import plot_parallel_coordinate

    shown, label = METRICS[metric], f"validation {METRICS[metric].axis_label}"
    complete = [
        replace(trial, value=shown.scale(trial.value))
        for trial in trials
        if trial.state == "complete" and trial.value is not None
    ]
    with drawing(7.2, 3.8), warnings.catch_warnings():
        # the plot is experimental, and equal values have no range
        warnings.simplefilter("ignore")
        axes = plot_parallel_coordinate(optuna_study(complete, parameters), target_name=label)
        figure: Any = axes.figure
        try:
            figure.set_size_inches(7.2, 3.8)
            axes.set_title("")
            # dark is good; the lightest fifth of the colours is not visible on white
            values = [trial.value or 0.0 for trial in complete]
            low, high = min(values, default=0.0), max(values, default=1.0)
            spare = 0.25 * (high - low or 1.0)
            ends = (low - spare, high) if shown.higher_is_better else (low, high + spare)
            axes.collections[0].set(
                cmap="viridis_r" if shown.higher_is_better else "viridis", clim=ends
            )
            order = sorted(parameter.name for parameter in parameters)
            names = [label, *(TITLES.get(name, name) for name in order)]
            axes.set_xticks(range(len(names)), names, rotation=0)
            # the colour bar repeats the axis of the score
            figure.axes[1].remove()
            for panel in figure.axes:
                panel.set_position((0.13, 0.11, 0.74, 0.78))
                panel.grid(visible=False)
                panel.spines["right"].set_visible(panel is not axes)
            return Picture.of(
                figure,
                "parallel",
                alt=f"Parallel coordinates of {len(complete)} trials: {', '.join(names)}.",
                caption=f"Each of {len(complete)} complete trials as a line from its score on the "
                "left through its parameters; dark: the best.",
            )
        finally:
            pyplot.close(figure)


def draw_importance(shares: Mapping[str, float]) -> Picture:
    """The share of each parameter in the variance between trials."""
    names = [TITLES.get(name, name) for name in shares]
    percent = [f"{100 * share:.0f} %" for share in shares.values()]
    with drawing(5.6, 0.5 + 0.42 * len(names)) as figure:
        axes = figure.subplots()
        bars = axes.barh(names, list(shares.values()), color=series_style(0)["color"], height=0.6)
        axes.bar_label(bars, percent, padding=3, fontsize=8)
        axes.invert_yaxis()
        axes.set(xlim=(0, 1.08), xlabel="share of the variance between trials")
        axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        axes.grid(visible=False, axis="y")
        return Picture.of(
            figure,
            "importance",
            alt="Bars: " + ", ".join(map(" ".join, zip(names, percent, strict=True))),
            caption="Share of the variance between complete trials due to each parameter, by "
            "fANOVA (Hutter et al., 2014). The variance includes that of seeds: if trials differ "
            "little otherwise, the shares are not meaningful.",
        )
