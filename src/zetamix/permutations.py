"""Random integers as orders of batch rows, each order as likely as any other."""

import torch
from torch import Tensor

from zetamix.sampling import KEY_LIMIT


def order_rows(bits: Tensor, batch: int, sources: int, anchor: str) -> Tensor:
    """Turn random integers into [outputs, sources] distinct batch rows, uniform over all orders."""
    outputs, width = bits.shape
    anchors = torch.arange(outputs, device=bits.device) % batch if anchor == "self" else None
    if width == batch:
        return _order_by_keys(bits, sources, anchors)
    return _order_by_digits(bits, batch, anchors)


def _order_by_keys(bits: Tensor, sources: int, anchors: Tensor | None) -> Tensor:
    """Sort random keys, largest first.

    A name for the column stands in the lowest bits of a key, so that the sorted keys hold the
    order themselves. Keys of 30 bits sort fast; batches beyond 1024 take all 62. Where the bits
    above are equal, the names decide: they are the columns under a random mask for each output,
    from bits that the keys leave over, so that this too is the toss of a fair coin.
    """
    batch = bits.shape[1]
    shift = 32 if batch <= 1024 else 0
    low = (1 << (batch - 1).bit_length()) - 1
    mask = bits[:, :1] & low
    names = torch.arange(batch, device=bits.device) ^ mask
    keys = ((bits >> shift) & ~low) | names
    if anchors is not None:
        first = anchors[:, None]
        keys.scatter_(1, first, (first ^ mask) | (KEY_LIMIT >> shift))
    keys = keys.int() if shift else keys
    if sources == batch:
        ordered = keys.sort(dim=1, descending=True).values
    else:
        ordered = keys.topk(sources, dim=1, sorted=True).values
    return ((ordered & low) ^ mask).long()


def _order_by_digits(bits: Tensor, batch: int, anchors: Tensor | None) -> Tensor:
    """Read random integers as the digits of a Lehmer code and decode it.

    Digit t counts the rows below the t-th choice among those not chosen yet. Codes and ordered
    choices correspond one to one, so uniform digits give uniform orders.
    """
    sources = bits.shape[1]
    digits = bits % torch.arange(batch, batch - sources, -1, device=bits.device)
    if anchors is not None:
        digits = torch.cat([anchors[:, None], digits[:, 1:]], dim=1)
    digits = digits.t().contiguous()
    for rank in range(sources - 2, -1, -1):
        later = digits[rank + 1 :]
        later += later >= digits[rank]
    return digits.t().contiguous()
