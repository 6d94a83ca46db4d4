"""Peak memory of a call, in addition to the memory allocated before it."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_bytes(call: Callable[[], object]) -> int:
    """From torch's allocations on the CPU."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    held = peak = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak
