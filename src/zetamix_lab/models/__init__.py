"""Networks by name: own, torchvision's and timm's; initial weights; trained models."""

from zetamix_lab.models.networks import TrainedModel as TrainedModel
from zetamix_lab.models.networks import UnknownModelError as UnknownModelError
from zetamix_lab.models.networks import WeightsError as WeightsError
from zetamix_lab.models.networks import check_model as check_model
from zetamix_lab.models.networks import default_model as default_model
from zetamix_lab.models.networks import initialise as initialise
from zetamix_lab.models.networks import is_random as is_random
