"""ZetaMix, ζ-mixup, mixup and CutMix for PyTorch: batch → rule → plan → mixed batch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zetamix import rules as rules
    from zetamix.gamma import GAMMA_MIN as GAMMA_MIN
    from zetamix.gamma import describe_gamma as describe_gamma
    from zetamix.losses import SoftCrossEntropy as SoftCrossEntropy
    from zetamix.losses import soft_cross_entropy as soft_cross_entropy
    from zetamix.mix import apply_plan as apply_plan
    from zetamix.mix import mixup as mixup
    from zetamix.mix import zeta_mixup as zeta_mixup
    from zetamix.plan import MixPlan as MixPlan
    from zetamix.plan import mixup_plan as mixup_plan
    from zetamix.plan import zeta_plan as zeta_plan
    from zetamix.transforms import CutMix as CutMix
    from zetamix.transforms import Mixup as Mixup
    from zetamix.transforms import MixupOrCutMix as MixupOrCutMix
    from zetamix.transforms import ZetaMix as ZetaMix
    from zetamix.transforms import ZetaMixup as ZetaMixup

__version__ = "0.1.0"

# imported when they are first used: torch takes 2 s, and `zetamix --help` does not need it
_HOMES = {
    "gamma": ("GAMMA_MIN", "describe_gamma"),
    "losses": ("SoftCrossEntropy", "soft_cross_entropy"),
    "mix": ("apply_plan", "mixup", "zeta_mixup"),
    "plan": ("MixPlan", "mixup_plan", "zeta_plan"),
    "rules": (),
    "transforms": ("CutMix", "Mixup", "MixupOrCutMix", "ZetaMix", "ZetaMixup"),
}
__all__ = ["rules", *(name for names in _HOMES.values() for name in names)]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name == home or name in names:
            module = import_module(f"zetamix.{home}")
            globals()[name] = value = module if name == home else getattr(module, name)
            return value
    raise AttributeError(f"module 'zetamix' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *__all__})
