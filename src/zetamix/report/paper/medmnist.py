"""The table of MedMNIST."""

from zetamix.report.paper.comparison import compare
from zetamix.report.paper.verdict import judge
from zetamix.report.paper.view import Drawn, View

LEFT_OPEN = (
    "The paper gives the rate, the loss, SGD and the batch; epochs, momentum, normalisation and "
    "the choice of the epoch by validation AUC are those of MedMNIST's own script."
)


def draw(view: View) -> Drawn:
    table = compare(view, ["auc", "accuracy"], "AUC and accuracy on MedMNIST", [LEFT_OPEN])
    words, answer = judge(view, "auc")
    return Drawn(tables={"medmnist": table}, verdict=words, answer=answer)
