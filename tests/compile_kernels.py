"""Compile every kernel for real GPUs, on a machine that has none. Run by `test_kernels.py`.

A process of its own, because there the kernels are compiled and not interpreted.
"""

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from zetamix.kernels import triton_launch
from zetamix.kernels.triton_kernel import matrix_kernel, mix_kernel, product_kernel

POINTERS = {"seed_p": "*i64", "labels_p": "*i64", "targets_p": "*fp32", "matrix_p": "*fp32"}
NUMBERS = dict.fromkeys(("number", "span", "cut", "p", "paste"), "fp32") | {"offset": "i64"}
# what is None in most calls
NOTHING = {"gamma_p": None, "ignore": None}
BLEND = {"SOURCES": 2, "ROWS": "self", "LAW": "zeta", "BOXES": "none", "KEEP": True, "MEANS": ()}
BLEND |= {"LAST": False, "CLASS_BLOCK": 16}
PASTE = BLEND | {"BOXES": "inside", "CHUNK": 32}
ROTATED = {"ROWS": "rotated", "LAW": "batch", "KEEP": False}
MIXES = {
    "ZetaMix, blended": BLEND,
    "ZetaMix": PASTE,
    "with means": PASTE | {"MEANS": (0.5, 0.4, 0.3)},
    "channels last": PASTE | {"MEANS": (0.5, 0.4, 0.3), "LAST": True},
    "four sources, odd images": PASTE
    | {"SOURCES": 4, "MEANS": (0.5, 0.4, 0.3), "CHUNK": 1, "ignore": "i32"},
    "ZetaMixup": BLEND | {"SOURCES": 3, "ROWS": "random", "KEEP": False, "gamma_p": "*fp64"},
    "Mixup": BLEND | ROTATED | {"LAW": "sample"},
    "CutMix": PASTE | ROTATED | {"BOXES": "around"},
}
DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "u8": torch.uint8,
}
# compute capability and the shared memory that a program may take: RTX 30 and 40, which have less
# than an A100, and H100
TARGETS = {80: 101_376, 90: 232_448}
compiled_kernels = []


def compile_for(capability, kernel, rows, options, *, warps):
    """Compile a kernel and check that it fits on the multiprocessor."""
    given = {name: value for name, value in options.items() if name in kernel.arg_names}
    given = {n: v for n, v in NOTHING.items() if n in kernel.arg_names} | given
    types = {name: v for name, v in given.items() if name in NOTHING and v is not None}
    constants = {name: value for name, value in given.items() if name not in types}
    signature = {name: NUMBERS.get(name, POINTERS.get(name, "i32")) for name in kernel.arg_names}
    signature |= {n: f"*{rows}" for n in ("rows_p", "out_p") if n in signature}
    signature |= types | dict.fromkeys(constants, "constexpr")
    positions = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, positions)
    settings = triton_launch.OPTIONS | {"num_warps": warps, "debug": True}
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=settings)
    assert compiled.metadata.shared <= TARGETS[capability], (capability, rows, constants)
    compiled_kernels.append(compiled)


def main():
    for capability in TARGETS:
        for name, dtype in DTYPES.items():
            block, warps = triton_launch.tiling(3 * 224 * 224, dtype)
            # all kinds for the newest GPU and one dtype, else the largest
            every = (capability, name) == (90, "fp32")
            kinds = MIXES if every else ("CutMix", "four sources, odd images")
            for kind in kinds:
                constants = {"BLOCK": block, "CHUNK": block} | MIXES[kind]
                compile_for(capability, mix_kernel, name, constants, warps=warps)
        for digits in (False, True):
            plan = {"SELF": True, "DIGITS": digits, "BLOCK": 256, "CLASS_BLOCK": 64}
            compile_for(capability, matrix_kernel, "fp32", plan, warps=4)
        for name in ("fp32", "u8"):
            blocks = {"BLOCK_OUT": 128, "BLOCK_IN": 32, "BLOCK": 128}
            compile_for(capability, product_kernel, name, blocks, warps=8)
    print(f"compiled {len(compiled_kernels)}")


if __name__ == "__main__":
    main()
