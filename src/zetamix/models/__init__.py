"""Networks by name: those of the paper, torchvision's, timm's and your own; initial weights."""

from zetamix.models.errors import UnknownModelError as UnknownModelError
from zetamix.models.errors import WeightsError as WeightsError
from zetamix.models.networks import OWN_MODELS as OWN_MODELS
from zetamix.models.networks import TORCH_LOCK as TORCH_LOCK
from zetamix.models.networks import TrainedModel as TrainedModel
from zetamix.models.networks import build as build
from zetamix.models.networks import count_parameters as count_parameters
from zetamix.models.networks import default_model as default_model
from zetamix.models.networks import initialise as initialise
from zetamix.models.networks import is_random as is_random
from zetamix.models.networks import seeded as seeded
from zetamix.models.python_file import is_python_file as is_python_file
from zetamix.models.weights import load_weights as load_weights
