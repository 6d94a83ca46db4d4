"""The whole training step as one CUDA graph: the host launches it with a single call."""

import torch

from zetamix.train.trainer import Trainer

# a compiled step saves 0.5 ms of 2.9 on an H200; the first run of a process waits 20 to 31 s for
# it, every other one a second or two
COMPILE_FROM_STEPS = 60_000
# eager steps before a capture: cuDNN tries its algorithms, torch.compile compiles
WARMUP_STEPS = 3


def compile_pays(device: torch.device, steps: int) -> bool:
    """Whether runs of so many steps together, in one process, are done earlier if compiled.

    >>> [compile_pays(torch.device("cuda"), steps) for steps in (59_999, 60_000)]
    [False, True]
    >>> compile_pays(torch.device("cpu"), 60_000)
    False
    """
    return device.type == "cuda" and steps >= COMPILE_FROM_STEPS


class CapturedStep:
    """A trainer's step, captured once and replayed; the trainer goes on where it was.

    Each captured step has a stream of its own, so that several models train side by side.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.stream = torch.cuda.Stream(trainer.device)  # type: ignore[no-untyped-call]
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(trainer.generator)
        kept = _Snapshot(trainer)
        self.stream.wait_stream(torch.cuda.current_stream(trainer.device))
        with torch.cuda.stream(self.stream), trainer.layer_draws():
            trainer.feed()
            for _ in range(WARMUP_STEPS):
                trainer.compute(trainer.loader.batch_size)
                trainer.index.zero_()
            trainer.optimizer.zero_grad(set_to_none=True)
        self.stream.synchronize()
        # other models may be busy on their streams while this one is captured
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
            trainer.compute(trainer.loader.batch_size)
        with torch.cuda.stream(self.stream):
            kept.restore()
            # the batch that the warm-up was fed comes again
            trainer.open_stream()
        self.stream.synchronize()

    def __call__(self) -> None:
        self.trainer.feed()
        # a replay takes the state that torch's default generator has when it is launched
        with self.trainer.layer_draws():
            self.graph.replay()
        self.trainer.step_in_epoch += 1


class _Snapshot:
    """Everything that warm-up steps change, to be put back into the same memory."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.model = [part.clone() for part in trainer.model.state_dict().values()]
        self.momentum = [part.clone() for part in _momentum(trainer)]
        self.generator = trainer.generator.get_state()
        self.index = trainer.index.clone()
        self.tally = trainer.tally.state.clone()

    def restore(self) -> None:
        trainer = self.trainer
        for part, old in zip(trainer.model.state_dict().values(), self.model, strict=True):
            part.copy_(old)
        for index, part in enumerate(_momentum(trainer)):
            # without momentum yet, a buffer of zeros becomes the gradient, as SGD's first step does
            part.copy_(self.momentum[index]) if self.momentum else part.zero_()
        trainer.generator.set_state(self.generator)
        trainer.index.copy_(self.index)
        trainer.tally.state.copy_(self.tally)


def _momentum(trainer: Trainer) -> list[torch.Tensor]:
    buffers = [state.get("momentum_buffer") for state in trainer.optimizer.state.values()]
    return [buffer for buffer in buffers if buffer is not None]
