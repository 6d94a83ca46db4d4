"""MONAI: `ZetaMixd`, a dictionary transform of batches beside `monai.transforms.MixUpd`."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy
import torch
from monai.config.type_definitions import KeysCollection
from monai.data.meta_tensor import MetaTensor
from monai.transforms.transform import MapTransform, RandomizableTransform
from monai.utils.misc import ensure_tuple, ensure_tuple_rep
from torch import Tensor

from zetamix._checks import check_values
from zetamix.batch_mix import BatchMix
from zetamix.rules import Blend, Rule, infer_rule
from zetamix.transforms import ZetaMix

# what numpy.random.RandomState.randint draws a seed below
SEEDS = 2**31


class ZetaMixd(MapTransform, RandomizableTransform):
    """Mixes a collated batch: images of `keys`, and what belongs to them of `label_keys`.

    One plan for all keys. Batches may have any size, the last one too. Metadata of a MetaTensor is
    kept: output k has that of sample k. Entries of other keys are left alone.

    keys: images [n, channels, ...]. Volumes are blended; of images of two dimensions, ZetaMix
        blends half and pastes half as boxes, with their masks.
    label_keys: volumes of class indices [n, 1, ...] or [n, ...] become soft masks
        [n, num_classes, ...], class labels [n] or [n, 1] soft targets [n, num_classes]. Other
        floating point entries are averaged.
    num_classes: of integer labels; one number, or one for each of `label_keys`, where None stands
        for floating point entries.
    ignore_index: as in `zetamix.ZetaMixup`.
    mean: of images in [0, 1], as in `zetamix.ZetaMix`; without it they are taken as normalised to
        mean 0, as by `NormalizeIntensityd`.
    mixer: the class of transform, of `zetamix.transforms`: ZetaMix, ZetaMixup, Mixup, CutMix.
    options: for the mixer: gamma, sources, keep_variance, paste, alpha, p.

    Randomness comes from `self.R`, which `set_random_state` and MONAI's Compose and DataLoader
    seed: each batch draws the seed of its plan from it.

    >>> mix = ZetaMixd("image", "label", num_classes=3)
    >>> batch = {"image": torch.randn(2, 1, 4, 4, 4), "label": torch.randint(3, (2, 1, 4, 4, 4))}
    >>> mix(batch)["label"].shape
    torch.Size([2, 3, 4, 4, 4])
    """

    def __init__(
        self,
        keys: KeysCollection,
        label_keys: KeysCollection | None = None,
        num_classes: int | Sequence[int | None] | None = None,
        *,
        ignore_index: int | None = None,
        mean: float | Sequence[float] | None = None,
        mixer: type[BatchMix] = ZetaMix,
        allow_missing_keys: bool = False,
        **options: Any,
    ) -> None:
        labels = () if label_keys is None else ensure_tuple(label_keys)
        images = ensure_tuple(keys)
        MapTransform.__init__(self, (*images, *labels), allow_missing_keys)
        RandomizableTransform.__init__(self, prob=1.0)
        self.classes = dict(zip(labels, ensure_tuple_rep(num_classes, len(labels)), strict=True))
        self.ignore_index = ignore_index
        self.blend = Blend(mean)
        # rules belong to a batch, which may lack keys: each call sets them
        self.mixer = mixer(rules=self.blend, generator=torch.Generator(), **options)

    def randomize(self, data: Any = None) -> None:
        """Draw the seed of the next plan, for a batch on the device of the tensor `data`."""
        device = torch.device("cpu") if data is None else data.device
        # a new one for each batch, because a generator belongs to one device
        self.mixer.generator = torch.Generator(device).manual_seed(int(self.R.randint(SEEDS)))

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """The batch with its keys mixed, as a new dict."""
        batch = dict(data)
        plain = {key: self._plain(key, batch[key]) for key in self.key_iterator(batch)}
        if not plain:
            return batch
        self.mixer.rules = {key: self._rule(key, value) for key, value in plain.items()}
        self.randomize(next(iter(plain.values())))
        mixed = self.mixer(plain)
        return {**batch, **{key: _as_given(mixed[key], batch[key]) for key in mixed}}

    def _plain(self, key: Hashable, value: Any) -> Tensor:
        """A tensor without metadata, whose operations MONAI would follow."""
        given: Tensor = torch.as_tensor(value)
        tensor = given.as_tensor() if isinstance(given, MetaTensor) else given
        classes = self.classes.get(key)
        if classes and tensor.is_floating_point() and tensor.shape[1:2] == (1,) and classes > 1:
            # LoadImaged reads label volumes as floating point numbers
            whole = f"batch[{key!r}] must hold class indices, whole numbers, got fractions."
            check_values(tensor == tensor.round(), whole)
            return tensor.long()
        return tensor

    def _rule(self, key: Hashable, value: Any) -> Rule:
        if key not in self.classes:
            return self.blend
        try:
            return infer_rule(value, self.classes[key], self.ignore_index)
        except (TypeError, ValueError) as error:
            error.add_note(f"In batch[{key!r}].")
            raise


def _as_given(mixed: Tensor, given: Any) -> Any:
    """As a MetaTensor or an array where that was given, in the dtype of what is mixed."""
    if isinstance(given, MetaTensor):
        return MetaTensor(mixed).copy_meta_from(given)  # type: ignore[no-untyped-call]
    return mixed.numpy() if isinstance(given, numpy.ndarray) else mixed
