"""The model of a finished run, ready for use: it takes samples as they are stored."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zetamix.atomic_io import write_json
from zetamix.data.augment import Scale
from zetamix.models import build
from zetamix.train.run_folder import FolderError
from zetamix.train.trainer import Trainer

FORM, WEIGHTS = "model.json", "final.pt"


class Trained(nn.Module):
    """A trained network behind the normalisation it was trained with."""

    def __init__(
        self, network: nn.Module, classes: tuple[str, ...], shape: tuple[int, ...], scale: Scale
    ) -> None:
        super().__init__()
        self.network = network
        self.shape = shape
        """Of one sample in training; most networks take images of other sides too."""
        self.classes = classes
        """Their names, in the order of the logits."""
        self.register_buffer("mean", scale.mean)
        self.register_buffer("std", scale.std)

    def forward(self, samples: Tensor) -> Tensor:
        """Logits [n, classes].

        samples: images [n, channels, height, width], as bytes or, as a `Loader` gives them,
            floating point from 0 to 1; or points [n, coordinates].
        """
        if samples.ndim != 1 + len(self.shape) or samples.shape[1] != self.shape[0]:
            raise ValueError(
                f"Expected a batch of samples like {list(self.shape)}, as in training, got "
                f"{list(samples.shape)}."
            )
        if len(self.shape) == 3 and samples.is_floating_point():
            samples = 255 * samples
        scale = Scale(self.get_buffer("mean"), self.get_buffer("std"))
        logits: Tensor = self.network(scale.apply(samples, torch.float32))
        return logits


def write_form(folder: Path, trainer: Trainer) -> None:
    """Beside the weights, what it takes to build the network that they belong to."""
    recipe, dataset, scale = trainer.recipe, trainer.dataset, trainer.loader.scale
    form = {
        "model": recipe.model,
        "stem": recipe.stem,
        "shape": list(dataset.shape),
        "classes": list(dataset.classes),
        "mean": scale.mean.tolist(),
        "std": scale.std.tolist(),
    }
    write_json(folder / FORM, form)


def load_model(folder: str | Path, device: torch.device | str = "cpu") -> Trained:
    """The model of a finished run after its last epoch, in evaluation mode.

    folder: what `zetamix train` left, such as runs/photos/zeta-2.8-s0.
    """
    path = Path(folder)
    if not (path / "record.json").exists():
        raise FolderError(
            f"{path} holds no finished run: there is no record.json. Expected a folder that "
            "zetamix train has left, such as runs/photos/zeta-2.8-s0."
        )
    try:
        form: dict[str, Any] = json.loads((path / FORM).read_text(encoding="utf-8"))
        weights = torch.load(path / WEIGHTS, map_location="cpu", weights_only=True)
    except Exception as error:
        raise FolderError(
            f"The model of {path} cannot be read ({error}). Train it again: runs from before "
            f"{FORM} was written have none."
        ) from error
    shape, classes = tuple(form["shape"]), tuple(form["classes"])
    network = build(form["model"], len(classes), shape, stem=form["stem"])
    network.load_state_dict(weights)
    scale = Scale(torch.tensor(form["mean"]), torch.tensor(form["std"]))
    return Trained(network, classes, shape, scale).to(device).eval()
