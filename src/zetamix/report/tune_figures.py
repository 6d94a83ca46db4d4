"""The figures of the paper's sensitivity analysis, from anyone's trials."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from zetamix.gamma import GAMMA_MIN
from zetamix.metrics import METRICS
from zetamix.report import Picture, drawing, series_style
from zetamix.report.figure import GREY
from zetamix.results.search_space import TITLES, Setting
from zetamix.results.tuning import Trial, all_tie
from zetamix.results.tuning_analysis import Point, best_with_error, curve, has_seeds, trend

LIGHT = "#bbbbbb"
# standard errors from the best within which no trial is called far worse
CLOSE = 3.0


def measure_name(metric: str, split: str) -> str:
    """What an axis is called: `validation error rate, %`."""
    where = {"val": "validation", "test": "test"}[split]
    return f"{where} {METRICS[metric].axis_label}"


def draw_gamma(
    trials: Sequence[Trial],
    metric: str,
    *,
    split: str = "val",
    chosen: Setting | None = None,
    span: tuple[float, float] | None = None,
    title: str = "",
) -> Picture:
    """The measure against γ: a band over seeds where γ were tried several times, else trials.

    span: what was searched; None shows what was tried.
    """
    with drawing(6.8, 3.9) as figure:
        axes = figure.subplots()
        seeds = has_seeds(trials)
        if seeds:
            words = _draw_curve(axes, trials, metric)
        else:
            words = _draw_cloud(axes, trials, metric)
        words += _draw_near_best(axes, trials, metric)
        # a band may reach below 0, the measure does not; a point at 0 is to be seen whole
        low, high = axes.get_ylim()
        axes.set_ylim(bottom=max(low, -0.04 * high))
        tried = [trial.gamma for trial in trials if trial.gamma is not None]
        shown = tried if span is None else [*tried, *span]
        if shown and min(shown) < GAMMA_MIN + 0.5:
            axes.axvline(GAMMA_MIN, color=GREY, lw=1, ls=":", label="GAMMA_MIN = 1.72865")
            words += " Dotted: GAMMA_MIN, from which on one sample outweighs all others together."
        name = "chosen" if split == "val" else "best"
        if chosen is not None and "gamma" in chosen:
            best, colour = float(chosen["gamma"]), series_style(2)["color"]
            axes.axvline(best, color=colour, lw=1, ls="--", label=f"{name} γ = {best:g}")
            words += f" Dashed: the {name} γ, {best:g}."
        if span is not None:
            margin = 0.03 * (span[1] - span[0])
            axes.set_xlim(span[0] - margin, span[1] + margin)
        axes.set_xlabel("γ")
        axes.set_ylabel(measure_name(metric, split))
        axes.set_title(title)
        # inside the axes, the point beside a name would look like one more trial
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8)
        return Picture.of(
            figure,
            "gamma",
            alt=f"{measure_name(metric, split)} against γ, {len(tried)} trials.",
            caption=words,
        )


def _draw_curve(axes: Axes, trials: Sequence[Trial], metric: str) -> str:
    points = curve(trials)
    style = series_style(0)
    _draw_band(axes, points, metric, style["color"])
    xs = [point.gamma for point in points]
    ys = [METRICS[metric].scale(point.value) for point in points]
    axes.plot(xs, ys, **style, label="mean")
    done = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    axes.scatter(
        [trial.gamma or 0.0 for trial in done],
        [METRICS[metric].scale(trial.value or 0.0) for trial in done],
        s=9,
        color=style["color"],
        alpha=0.35,
        lw=0,
        label="each seed",
    )
    counts = sorted({int(point.n) for point in points})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean over {seeds} seeds at each of {len(points)} γ; band: ± 1 standard deviation."


def _draw_cloud(axes: Axes, trials: Sequence[Trial], metric: str) -> str:
    points = trend(trials)
    style = series_style(0)
    if points:
        _draw_band(axes, points, metric, style["color"])
        ys = [METRICS[metric].scale(point.value) for point in points]
        axes.plot([point.gamma for point in points], ys, color=style["color"], label="local mean")
    groups: list[tuple[str, list[Trial], dict[str, Any]]] = [
        (
            "γ below GAMMA_MIN",
            _of(trials, "complete", below=True),
            {"color": LIGHT, "marker": "o", "edgecolors": GREY, "lw": 0.5},
        ),
        (
            "trial",
            _of(trials, "complete", below=False),
            {"color": style["color"], "marker": "o", "lw": 0},
        ),
        (
            "stopped early",
            _of(trials, "pruned"),
            {"facecolors": "none", "edgecolors": GREY, "marker": "s", "lw": 0.8},
        ),
    ]
    worst = _worst_shown(trials, metric)
    sign = _worse(metric)
    beyond: list[float] = []
    for name, group, look in groups:
        places = [(t.gamma or 0.0, METRICS[metric].scale(t.value or 0.0)) for t in group]
        inside = [(x, y) for x, y in places if sign * y <= sign * worst]
        beyond += [x for x, y in places if sign * y > sign * worst]
        if inside:
            x_values, y_values = zip(*inside, strict=True)
            axes.scatter(x_values, y_values, s=16, label=name, **look)
    if beyond:
        marker = "^" if sign > 0 else "v"
        axes.scatter(beyond, [worst] * len(beyond), s=22, color=GREY, marker=marker, label="beyond")
        # the local mean may run beyond it, too
        low, high = axes.get_ylim()
        if sign > 0:
            axes.set_ylim(top=worst + 0.05 * (worst - low))
        else:
            axes.set_ylim(bottom=worst - 0.05 * (high - worst))
    words = "One point for each trial, all other parameters as they were drawn."
    if beyond:
        words += " Triangles: far worse, beyond the axis."
    if points:
        words += " Line and band: local mean ± 1 standard error."
    return words


def _of(trials: Sequence[Trial], state: str, below: bool | None = None) -> list[Trial]:
    known = [t for t in trials if t.state == state and t.gamma is not None and t.value is not None]
    return [t for t in known if below is None or ((t.gamma or 0.0) < GAMMA_MIN) == below]


def _draw_band(axes: Axes, points: Sequence[Point], metric: str, colour: Any) -> None:
    known = [point for point in points if point.band is not None]
    axes.fill_between(
        [point.gamma for point in known],
        [METRICS[metric].scale(point.value - (point.band or 0.0)) for point in known],
        [METRICS[metric].scale(point.value + (point.band or 0.0)) for point in known],
        color=colour,
        alpha=0.15,
        lw=0,
    )


def _draw_near_best(axes: Axes, trials: Sequence[Trial], metric: str) -> str:
    """The band of what cannot be told from the best; none where trials tie, for none is best."""
    best = best_with_error(trials, metric)
    if best is None or best.error <= 0 or all_tie(trials):
        return ""
    end = best.value + _worse(metric) * best.error
    ends = sorted(METRICS[metric].scale(value) for value in (best.value, end))
    axes.axhspan(*ends, color=GREY, alpha=0.12, lw=0, zorder=0, label="1 s.e. from the best")
    source = "over seeds" if best.over_seeds else "of the samples"
    return f" Grey band: within one standard error, {source}, of the best."


def _worse(metric: str) -> int:
    """The direction in which a measure gets worse."""
    return -1 if METRICS[metric].higher_is_better else 1


def _worst_shown(trials: Sequence[Trial], metric: str) -> float:
    """Where the axis ends: a trial stopped at 60 % would flatten all that differ by 0.1.

    Never within a few standard errors of the best: such a trial may be as good.
    """
    sign = _worse(metric)
    done = [t.value for t in trials if t.state == "complete" and t.value is not None]
    if len(done) < 8:
        return sign * math.inf
    bad = sorted(sign * METRICS[metric].scale(value) for value in done)
    low, high = bad[len(bad) // 4], bad[-1 - len(bad) // 4]
    best = best_with_error(trials, metric)
    close = bad[0]
    if best is not None:
        close = METRICS[metric].scale(sign * best.value + CLOSE * best.error)
    # Tukey's "far out": three times the distance of the quartiles beyond the upper one
    far = max(close, high + 3 * (high - low))
    inside = [value for value in bad if value <= far]
    return sign * max(close, inside[-1] + 0.1 * (inside[-1] - inside[0]))


def draw_importance(shares: Mapping[str, float]) -> Picture:
    """Which parameter made how much of the difference."""
    names = [TITLES.get(name, name) for name in shares]
    with drawing(5.6, 0.5 + 0.42 * len(names)) as figure:
        axes = figure.subplots()
        axes.barh(names, list(shares.values()), color=series_style(0)["color"], height=0.6)
        for place, share in enumerate(shares.values()):
            axes.text(share, place, f" {100 * share:.0f} %", va="center", fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.08)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.0f} %"))
        axes.set_xlabel("share of the variance between trials")
        axes.grid(visible=False, axis="y")
        return Picture.of(
            figure,
            "importance",
            alt="Bars: "
            + ", ".join(
                f"{n} {100 * s:.0f} %" for n, s in zip(names, shares.values(), strict=True)
            ),
            caption="Share of the variance between finished trials that each parameter accounts "
            "for, by fANOVA (Hutter et al., 2014). What seeds do is part of that variance: where "
            "trials hardly differ otherwise, the shares mean little.",
        )
