"""A cache of calls for batches of the same shapes, dtypes and options, which skip the checks.

Checking a batch and preparing its launch takes longer on the host than the GPU needs to mix it:
95 µs against 12 for 2 sources of 32 × 3 × 224² on an H200. On a CPU it is a fifth of the time of a
small batch.
"""

from collections.abc import Callable, Hashable
from typing import TypeAlias

import torch
from torch import Tensor

from zetamix.kernels.dispatch import needs_gradients
from zetamix.sampling import Draw

Call: TypeAlias = Callable[[Tensor, Tensor, Draw], tuple[Tensor, Tensor]]


class PreparedCalls(dict[Hashable, Call]):
    """Prepared calls, with everything they depend on as the key: shapes, dtypes, device, options.

    >>> import torch
    >>> calls = PreparedCalls()
    >>> samples, labels = torch.zeros(2, 3), torch.zeros(2)
    >>> calls.keep(samples, labels, "gamma=2.8", lambda samples, labels, draw: (samples, labels))
    >>> calls.find(samples.double(), labels, "gamma=2.8") is None
    True
    >>> calls.find(samples + 1, labels, "gamma=2.8") is None
    False
    """

    LIMIT = 64

    def find(self, samples: Tensor, labels: Tensor, options: Hashable) -> Call | None:
        """The call prepared for such batches and options, or None.

        Not for use while tracing.
        """
        if not _is_plain(samples) or not _is_plain(labels):
            return None
        call = self.get(_describe(samples, labels, options))
        return None if call is None or needs_gradients(samples) else call

    def keep(self, samples: Tensor, labels: Tensor, options: Hashable, call: Call) -> None:
        if len(self) >= self.LIMIT:
            self.clear()
        self[_describe(samples, labels, options)] = call


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has strides and memory: not sparse, not nested, not inside vmap."""
    strided = tensor.layout is torch.strided and not tensor.is_nested
    return strided and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _describe(samples: Tensor, labels: Tensor, options: Hashable) -> Hashable:
    return (
        samples.shape,
        samples.stride(),
        samples.dtype,
        samples.device,
        samples.data_ptr() % 16,
        labels.shape,
        labels.stride(),
        labels.dtype,
        labels.device,
        options,
    )
