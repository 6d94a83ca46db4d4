"""The datasets that are available by name, in the order of the paper."""

from zetamix.data.catalogue.medmnist import MEDMNIST
from zetamix.data.catalogue.natural import NATURAL
from zetamix.data.catalogue.skin import SKIN
from zetamix.data.catalogue.spec import DatasetSpec
from zetamix.data.catalogue.synthetic import SYNTHETIC

CATALOGUE: dict[str, DatasetSpec] = {
    spec.name: spec for spec in (*NATURAL, *SKIN, *MEDMNIST, *SYNTHETIC)
}
