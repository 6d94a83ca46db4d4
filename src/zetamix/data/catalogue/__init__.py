"""The datasets that are known by name: one table to read beside the paper."""

from zetamix.data.catalogue.medmnist import MEDMNIST
from zetamix.data.catalogue.natural import NATURAL
from zetamix.data.catalogue.skin import SKIN
from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.catalogue.synthetic import MADE

CATALOGUE: dict[str, DatasetSpec] = {
    spec.name: spec for spec in (*NATURAL, *SKIN, *MEDMNIST, *MADE)
}
