"""The figure of `zetamix bench --scaling`: time and memory, compared with a plain copy."""

from collections.abc import Sequence
from typing import Any

from zetamix_lab.report.figure import GREY, Picture, drawing, series_style

AXES = {
    "batch": "batch size, images of 3 × 32²",
    "sources": "sources per output, 128 × 3 × 32²",
    "side": "side of the images, batch of 64",
}
QUANTITIES = {"median_us": ("time per call, ms", 1e3), "peak_bytes": ("memory per call, MB", 1e6)}
COPY = "copy"


def scaling_picture(rows: Sequence[dict[str, Any]], machine: str) -> Picture:
    """A column for each axis, a row for time and one for memory, both on logarithmic scales."""
    axes = [axis for axis in AXES if any(row["axis"] == axis for row in rows)]
    methods = list(dict.fromkeys(row["method"] for row in rows if row["method"] != COPY))
    styles: dict[str, dict[str, Any]] = {COPY: {"color": GREY, "linestyle": ":"}}
    styles |= {name: series_style(k) for k, name in enumerate(methods)}
    with drawing(3.4 * len(axes) + 0.4, 5.6) as figure:
        grid = figure.subplots(2, len(axes), squeeze=False, sharex="col", sharey="row")
        handles: dict[str, Any] = {}
        for line, (field, (label, unit)) in zip(grid, QUANTITIES.items(), strict=True):
            for place, axis in zip(line, axes, strict=True):
                for name, style in styles.items():
                    found = [r for r in rows if (r["axis"], r["method"]) == (axis, name)]
                    if found:
                        heights = [row[field] / unit for row in found]
                        (handles[name],) = place.plot([r["at"] for r in found], heights, **style)
                place.set_xscale("log", base=2)
                place.xaxis.set_major_formatter("{x:,.0f}")
                place.set_yscale("log")
            line[0].set_ylabel(label)
        for place, axis in zip(grid[1], axes, strict=True):
            place.set_xlabel(AXES[axis])
        figure.legend(
            list(handles.values()), list(handles), loc="outside upper center", ncols=len(handles)
        )
        return Picture.of(
            figure,
            "scaling",
            alt="Time and memory of mixing against batch size, number of sources and image size.",
            caption="Median time of one call that draws a plan and mixes samples and labels, "
            f"float32; memory is the peak that a call adds, including its result. {machine}",
        )
