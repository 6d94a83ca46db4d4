"""MONAI: `ZetaMixd`, a dictionary transform of batches like `monai.transforms.MixUpd`."""

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

# upper bound of the seeds that numpy.random.RandomState.randint draws
SEEDS = 2**31


class ZetaMixd(MapTransform, RandomizableTransform):
    """Mixes a collated batch: images under `keys`, and their labels under `label_keys`.

    All keys share one plan. Batches may have any size. Metadata of a MetaTensor is kept: output k
    has that of sample k. Entries of other keys are not changed.

    keys: images [n, channels, ...]. Volumes are blended; of 2-D images, ZetaMix blends half and
        pastes boxes into the other half, with their masks.
    label_keys: volumes of class indices [n, 1, ...] or [n, ...] become soft masks
        [n, num_classes, ...], class labels [n] or [n, 1] soft targets [n, num_classes]. Other
        floating point entries are averaged.
    num_classes: number of classes of integer labels; one number, or one for each of `label_keys`,
        with None for floating point entries.
    ignore_index: as in `zetamix.ZetaMixup`.
    mean: the mean of images in [0, 1], as in `zetamix.ZetaMix`; without it, images are assumed to
        be normalised to mean 0, as by `NormalizeIntensityd`.
    mixer: the class of the transform: ZetaMix, ZetaMixup, Mixup or CutMix.
    options: arguments of the mixer: gamma, sources, keep_variance, paste, alpha, p.

    The seed of each plan is drawn from `self.R`, which `set_random_state` and MONAI's Compose and
    DataLoader seed.

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
        # a batch may lack keys, so every call sets the rules
        self.mixer = mixer(rules=self.blend, generator=torch.Generator(), **options)

    def randomize(self, data: Any = None) -> None:
        """Draw the seed of the next plan, for a batch on the device of the tensor `data`."""
        device = torch.device("cpu") if data is None else data.device
        # a new generator for each batch, because a generator belongs to one device
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
        """A plain tensor: MONAI would track the operations on a MetaTensor."""
        given: Tensor = torch.as_tensor(value)
        tensor = given.as_tensor() if isinstance(given, MetaTensor) else given
        classes = self.classes.get(key)
        if classes and tensor.is_floating_point() and tensor.shape[1:2] == (1,) and classes > 1:
            # LoadImaged reads label volumes as floating point numbers
            whole = f"batch[{key!r}] must contain class indices (integers), got fractions."
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
    """The mixed tensor as a MetaTensor or an array if the input was one, in its new dtype."""
    if isinstance(given, MetaTensor):
        return MetaTensor(mixed).copy_meta_from(given)  # type: ignore[no-untyped-call]
    return mixed.numpy() if isinstance(given, numpy.ndarray) else mixed
