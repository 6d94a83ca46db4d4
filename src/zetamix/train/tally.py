"""Loss and accuracy of the steps of an epoch, counted where they are taken."""

import torch
from torch import Tensor


class Tally:
    """Loss and accuracy of every step of an epoch, kept on the device."""

    def __init__(self, steps: int, device: torch.device) -> None:
        # rows: the mean loss of a step, the share of samples whose dominant class it got right
        self.state = torch.zeros(2, steps, device=device)

    def add(self, index: Tensor, loss: Tensor, logits: Tensor, targets: Tensor) -> None:
        dominant = targets.argmax(1) if targets.ndim == 2 else targets
        right = (logits.argmax(1) == dominant).float().mean()
        self.state.index_copy_(1, index, torch.stack([loss, right])[:, None])

    def read(self) -> tuple[float, float, int | None]:
        """Mean loss, mean accuracy, and the first step whose loss is not finite."""
        losses, rights = self.state.cpu()
        bad = (~torch.isfinite(losses)).nonzero()
        return float(losses.mean()), float(rights.mean()), int(bad[0]) if len(bad) else None
