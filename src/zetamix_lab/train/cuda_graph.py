"""The training step as a CUDA graph, which the host launches with a single call."""

import torch

from zetamix_lab.train.recipe import Recipe
from zetamix_lab.train.trainer import Trainer

# a compiled step saves 0.5 of 2.9 ms on an H200; compiling takes 20 to 31 s for the first run of a
# process and a second or two for each later one
COMPILE_FROM_STEPS = 60_000
# eager steps before a capture: cuDNN tries its algorithms, torch.compile compiles
WARMUP_STEPS = 3


def compiling_pays(device: torch.device, steps: int) -> bool:
    """Whether torch.compile saves time over all the steps that one process takes.

    >>> [compiling_pays(torch.device("cuda"), steps) for steps in (59_999, 60_000)]
    [False, True]
    >>> compiling_pays(torch.device("cpu"), 60_000)
    False
    """
    return device.type == "cuda" and steps >= COMPILE_FROM_STEPS


def can_capture(device: torch.device, recipe: Recipe, samples: int) -> bool:
    """Whether a step can be captured: on a GPU, with batches of one size."""
    one_size = recipe.last_batch == "drop" or samples % recipe.batch_size == 0
    return device.type == "cuda" and one_size


def capture(trainer: Trainer) -> None:
    """Capture the step of a trainer for `Trainer.step` to replay. Its state does not change.

    Each captured step has its own stream, so that several models train concurrently.
    """
    stream = torch.cuda.Stream(trainer.device)  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(trainer.generator)
    # everything that warm-up steps change
    moments, generator = _optimizer_state(trainer), trainer.generator.get_state()
    changing = [*trainer.model.state_dict().values(), trainer.index, trainer.step_metrics, *moments]
    copies = [part.clone() for part in changing]
    stream.wait_stream(torch.cuda.current_stream(trainer.device))
    with torch.cuda.stream(stream), trainer.layer_draws():
        trainer.feed()
        for _ in range(WARMUP_STEPS):
            trainer.compute(trainer.loader.batch_size)
            trainer.index.zero_()
        trainer.optimizer.zero_grad(set_to_none=True)
    stream.synchronize()
    # "thread_local" lets the thread that reads batches pin memory during the capture
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        trainer.compute(trainer.loader.batch_size)
    with torch.cuda.stream(stream):
        # in the memory that the graph uses
        for part, copy in zip(changing, copies, strict=True):
            part.copy_(copy)
        for part in [] if moments else _optimizer_state(trainer):
            # AdamW starts with zero moments and no steps; for SGD, zero momentum becomes the
            # gradient, as in its first step
            part.zero_()
        trainer.generator.set_state(generator)
        # start from the batch of the warm-up again
        trainer.open_stream()
    stream.synchronize()
    trainer.graph, trainer.stream = graph, stream


def _optimizer_state(trainer: Trainer) -> list[torch.Tensor]:
    """Momentum of SGD; moments and step counts of AdamW."""
    values = [value for state in trainer.optimizer.state.values() for value in state.values()]
    return [value for value in values if isinstance(value, torch.Tensor)]
