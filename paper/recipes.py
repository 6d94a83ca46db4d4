"""The recipes of the paper's Appendix D, one row per dataset.

The paper does not state normalisation, stem, last batch, precision and what selects the best epoch:
these are the defaults of `Recipe`. Its augmentation is "flip" in Appendix D and "rotation,
flipping, cropping" in Sec. 4.5; "crop-flip" comes closer to its error rates (5.48 % on CIFAR-10
without mixing). Its GPU had float32 only.
"""

from zetamix_lab.train import Recipe

_CIFAR = Recipe(
    source="paper, Appendix D.1",
    model="resnet18",
    epochs=200,
    batch_size=128,
    lr=0.1,
    milestones=(80, 120, 160),
    decay=0.2,
    evaluate_every=5,
)
_IMAGENET = _CIFAR.change(
    epochs=80, batch_size=32, lr=0.01, milestones=(25, 50, 65), evaluate_every=1
)
_SKIN = Recipe(
    source="paper, Appendix D.2",
    model="resnet18",
    epochs=50,
    batch_size=32,
    lr=0.01,
    milestones=(10, 20, 30, 40),
    decay=0.1,
    # the centre crop and resize that D.2 calls augmentation are part of preparing the data
    augmentation="none",
    select="balanced_accuracy",
)
# D.3 gives rate, loss, SGD and batch size and refers to "the original paper" for the rest: epochs,
# momentum without Nesterov, no weight decay, the constant rate, the normalisation and the selection
# by validation AUC are those of MedMNIST v1's script (whose own rate is 0.001, not 0.01)
_MED = Recipe(
    source="paper, Appendix D.3",
    model="resnet18",
    epochs=100,
    batch_size=128,
    lr=0.01,
    nesterov=False,
    weight_decay=0.0,
    augmentation="none",
    normalize="half",
    select="auc",
)

RECIPES: dict[str, Recipe] = {
    "cifar10": _CIFAR,
    "cifar100": _CIFAR,
    "fashion_mnist": _CIFAR.change(batch_size=32),
    # 120 epochs in Appendix D, 200 in the paper's table of times
    "stl10": _CIFAR.change(epochs=120, batch_size=32, milestones=(80,), evaluate_every=2),
    "imagenette": _IMAGENET,
    "imagewoof": _IMAGENET,
    "isic2016": _SKIN,
    "isic2017": _SKIN,
    "isic2018": _SKIN.change(epochs=20, milestones=(4, 8, 12, 16), evaluate_every=1),
    **dict.fromkeys(("msk", "uda", "dermofit", "derm7pt_clinical", "derm7pt_dermoscopic"), _SKIN),
    **dict.fromkeys(("ph2", "mednode"), _SKIN),
    **dict.fromkeys(("pathmnist", "dermamnist", "octmnist", "pneumoniamnist", "breastmnist"), _MED),
    **dict.fromkeys(("organmnist_axial", "organmnist_coronal", "organmnist_sagittal"), _MED),
}
# for the search for ZetaMix's default and its comparison
ZETAMIX_RECIPES = {
    **RECIPES,
    **dict.fromkeys(("cifar10", "cifar100"), _CIFAR.change(augmentation="crop-flip")),
}
