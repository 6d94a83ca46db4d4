"""The two tables of skin lesions."""

from zetamix.report.paper.comparison import LEFT_OPEN, compare
from zetamix.report.paper.verdict import judge
from zetamix.report.paper.view import Drawn, View

SPLITS = (
    "Every value that the paper prints is of one run. Seven of the ten sets are split 70:10:20 by "
    "a seed that the paper does not give: ours has its sizes, not its images, and for MSK not its "
    "sizes either: 3,676 images are left where the paper has 3,551, which cannot be had from the "
    "archive. ISIC 2018 is reported on its 193 validation images, as the paper's numbers are."
)


def draw(view: View) -> Drawn:
    metrics = ["balanced_accuracy"]
    table = compare(view, metrics, "Balanced accuracy on skin lesions", [SPLITS, LEFT_OPEN])
    words, answer = judge(view, metrics[0])
    return Drawn(tables={"skin": table}, verdict=words, answer=answer)


def draw_detailed(view: View) -> Drawn:
    metrics = ["balanced_accuracy", "f1_micro", "f1_macro"]
    table = compare(view, metrics, "Skin lesions in detail", [SPLITS, LEFT_OPEN])
    words, answer = judge(view, metrics[0])
    return Drawn(tables={"skin-detailed": table}, verdict=words, answer=answer)
