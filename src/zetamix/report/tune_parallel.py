"""All parameters of all trials at once: parallel coordinates, as in the paper's sweep."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator

from zetamix.gamma import GAMMA_MIN
from zetamix.metrics import METRICS
from zetamix.report import Picture, drawing
from zetamix.report.tune_figures import LIGHT, measure_name
from zetamix.results.search_space import TITLES, Parameter
from zetamix.results.tuning import Trial

# dark is good, lightness alone tells the order, and none of it is grey, which has its own meaning
DARK_LOW, DARK_HIGH = "viridis", "viridis_r"


def draw_parallel(
    trials: Sequence[Trial],
    parameters: Sequence[Parameter],
    metric: str,
    *,
    split: str = "val",
    title: str = "",
) -> Picture:
    """Every trial as a line through its parameters to its measure, as in the paper's figure."""
    done = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    scales = [_Scale.of_parameter(each) for each in parameters]
    values = [METRICS[metric].scale(trial.value or 0.0) for trial in done]
    scales.append(
        _Scale.of_measure(values, measure_name(metric, split), METRICS[metric].higher_is_better)
    )
    with drawing(7.2, 3.8) as figure:
        axes = figure.subplots()
        colours = matplotlib.colormaps[DARK_HIGH if METRICS[metric].higher_is_better else DARK_LOW]
        coloured = [value for trial, value in zip(done, values, strict=True) if not _below(trial)]
        shade = Normalize(*_shades(coloured, METRICS[metric].higher_is_better))
        order = sorted(zip(done, values, strict=True), key=lambda pair: _worst_first(pair, metric))
        lines, looks, widths = [], [], []
        for trial, value in order:
            heights = [
                scale.height(trial.setting[each.name])
                for scale, each in zip(scales, parameters, strict=False)
            ]
            lines.append(list(enumerate([*heights, scales[-1].height(value)])))
            looks.append(LIGHT if _below(trial) else colours(shade(value)))
            widths.append(0.8 if _below(trial) else 1.1)
        axes.add_collection(LineCollection(lines, colors=looks, linewidths=widths, alpha=0.85))
        for place, scale in enumerate(scales):
            _draw_scale(axes, place, scale)
        axes.set_xlim(-0.25, len(scales) - 0.65)
        axes.set_ylim(-0.04, 1.04)
        axes.set_axis_off()
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        return Picture.of(
            figure,
            "parallel",
            alt=f"Parallel coordinates of {len(done)} trials: "
            f"{', '.join(scale.name for scale in scales)}.",
            caption=f"Each of {len(done)} finished trials is a line through its parameters to its "
            "measure on the right, the best at the top and dark. Light grey: γ below GAMMA_MIN.",
        )


def _below(trial: Trial) -> bool:
    return trial.gamma is not None and trial.gamma < GAMMA_MIN


def _shades(values: Sequence[float], more_is_better: bool) -> tuple[float, float]:
    """What the colours range over; their lightest fifth cannot be seen on white."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    spare = 0.25 * (high - low or 1.0)
    return (low - spare, high) if more_is_better else (low, high + spare)


def _worst_first(pair: tuple[Trial, float], metric: str) -> tuple[bool, float]:
    """Grey at the very back, the best in front."""
    trial, value = pair
    return not _below(trial), value if METRICS[metric].higher_is_better else -value


class _Scale:
    """One vertical axis: where a value lies on it, from 0 to 1, and its ticks."""

    def __init__(self, name: str, ticks: Mapping[str, float], low: float, high: float) -> None:
        self.name, self.low, self.high = name, low, high
        self.ticks = {text: self._share(value) for text, value in ticks.items()}
        self.log = False
        self.places: Mapping[Any, float] = {}

    def _share(self, value: float) -> float:
        return 0.5 if self.high == self.low else (value - self.low) / (self.high - self.low)

    def height(self, value: Any) -> float:
        if self.places:
            return self.places[value]
        return self._share(math.log10(value) if self.log else float(value))

    @classmethod
    def of_parameter(cls, parameter: Parameter) -> "_Scale":
        name = TITLES.get(parameter.name, parameter.name)
        if parameter.values and (parameter.step is None or parameter.span is None):
            last = max(1, len(parameter.values) - 1)
            places = {value: k / last for k, value in enumerate(parameter.values)}
            scale = cls(name, {str(value): place for value, place in places.items()}, 0.0, 1.0)
            scale.places = places
            return scale
        ends = [float(value) for value in parameter.ends]
        low, high = min(ends), max(ends)
        if parameter.log:
            low, high = math.log10(low), math.log10(high)
            scale = cls(name, _log_ticks(low, high), low, high)
            scale.log = True
            return scale
        return cls(name, _ticks(low, high), low, high)

    @classmethod
    def of_measure(cls, values: Sequence[float], name: str, more_is_better: bool) -> "_Scale":
        """The better end is at the top."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        ticks = _ticks(low, high)
        return cls(name, ticks, low, high) if more_is_better else cls(name, ticks, high, low)


def _ticks(low: float, high: float) -> dict[str, float]:
    inside = [tick for tick in MaxNLocator(6).tick_values(low, high) if low <= tick <= high]
    return {f"{tick:g}": float(tick) for tick in inside or [low]}


def _log_ticks(low: float, high: float) -> dict[str, float]:
    found = {}
    for power in range(math.floor(low), math.ceil(high) + 1):
        for digit in (1, 2, 5):
            place = power + math.log10(digit)
            if low - 1e-9 <= place <= high + 1e-9:
                found[f"{digit}e{power}"] = place
    return found


def _draw_scale(axes: Axes, place: int, scale: _Scale) -> None:
    axes.plot([place, place], [0, 1], color="black", lw=1, zorder=3)
    axes.text(place, 1.05, scale.name, ha="center", va="bottom", fontweight="bold", fontsize=9)
    for text, height in scale.ticks.items():
        axes.plot([place - 0.012, place + 0.012], [height, height], color="black", lw=1, zorder=3)
        # lines cross behind the numbers
        ground = {"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 0.8}
        axes.text(
            place + 0.025,
            height,
            text,
            ha="left",
            va="center",
            fontsize=7.5,
            zorder=4,
            bbox=ground,
        )
