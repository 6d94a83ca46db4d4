"""How the records of each artifact are drawn; nothing about how they come about."""

from collections.abc import Callable, Mapping

from zetamix.report.paper import (
    dimension,
    distributions,
    medmnist,
    mnist,
    natural,
    overview,
    sensitivity,
    skin,
    theorems,
    timing,
)
from zetamix.report.paper.view import Answer as Answer
from zetamix.report.paper.view import Drawn as Drawn
from zetamix.report.paper.view import View as View

DRAWINGS: Mapping[str, Callable[[View], Drawn]] = {
    "overview": overview.draw,
    "distributions": distributions.draw,
    "mnist": mnist.draw,
    "dimension": dimension.draw,
    "natural": natural.draw,
    "skin": skin.draw,
    "skin-detailed": skin.draw_detailed,
    "medmnist": medmnist.draw,
    "timing": timing.draw,
    "sensitivity": sensitivity.draw,
    "theorems": theorems.draw,
}
