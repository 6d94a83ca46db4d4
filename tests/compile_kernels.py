"""Compile every kernel for real GPUs, on a machine that has none. Run by `test_kernels.py`.

A process of its own, because there the kernels are compiled and not interpreted.
"""

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from zetamix.kernels import triton_few_launch as few
from zetamix.kernels import triton_kernels as device
from zetamix.kernels import triton_launch as fused
from zetamix.kernels.triton_few import few_kernel

POINTERS = {"seed_p": "*i64", "gamma_p": "*fp64", "labels_p": "*i64", "indices_p": "*i64"}
POINTERS |= {"weights_p": "*fp32", "targets_p": "*fp32", "matrix_p": "*bf16"}
POINTERS |= {"boxes_p": "*i64"}
NUMBERS = {"offset": "i64"} | dict.fromkeys(("number", "span", "p", "paste"), "fp32")
NUMBERS |= {f"mean{k}": "fp32" for k in range(4)}
LOOP = {"BLOCK_OUT": 128, "BLOCK_IN": 32, "BLOCK": 128, "STAGES": 3}
PLAN = {"SELF": True, "PLAN": True, "TARGETS": True, "IGNORE": True, "CLASS_BLOCK": 16}
PLAN |= {"GAMMA_KIND": "number"}
FEW = {"LAW": "zeta", "GAMMA_KIND": "range", "SELF": True, "MIXES_ALL": True, "PLAN": False}
FEW |= {"KEEP": True, "IGNORE": False, "CLASS_BLOCK": 16}
FEW |= dict.fromkeys(("HEIGHT", "WIDTH", "CHANNELS"), 0) | {"PIXEL": 1, "CHANNEL": 1024}
SIZED = {"HEIGHT": 32, "WIDTH": 32}
FEWS = {
    "blend": {"SOURCES": 2},
    "everything": SIZED | {"SOURCES": 4, "MIXES_ALL": False, "CHANNELS": 3, "IGNORE": True},
    "mixup": {"SOURCES": 2, "LAW": "beta", "GAMMA_KIND": "number", "KEEP": False},
    "random anchor": {"SOURCES": 3, "SELF": False, "GAMMA_KIND": "tensor"},
    "plan": SIZED | {"SOURCES": 4, "PLAN": True},
}
# compute capability and the shared memory that a program may take: A100, RTX 30 and 40, H100
TARGETS = {80: fused.AMPERE, 86: fused.SMALL, 90: fused.HOPPER}
MODES = {
    ("fp32", "split3"): (torch.float32, "bf16"),
    ("fp32", "split2"): (torch.float32, "bf16"),
    ("bf16", "half"): (torch.bfloat16, "bf16"),
    ("fp16", "half"): (torch.float16, "fp16"),
    ("u8", "bytes"): (torch.uint8, "bf16"),
}


def compile_for(capability, kernel, rows, half, constants, warps=4):
    """Compile a kernel and check that it fits on the multiprocessor."""
    signature = {name: NUMBERS.get(name, POINTERS.get(name, "i32")) for name in kernel.arg_names}
    signature |= dict.fromkeys(("rows_p", "out_p", "x_desc", "out_desc"), f"*{rows}")
    signature |= {"matrix_p": f"*{half}"} | dict.fromkeys(constants, "constexpr")
    signature = {name: signature[name] for name in kernel.arg_names}
    positions = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, positions)
    asserts = kernel in (device.plan_kernel, device.mix_gather_kernel, few_kernel)
    options = {"num_warps": warps, "debug": asserts, "sanitize_overflow": False}
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    assert compiled.metadata.shared <= TARGETS[capability], (capability, rows, constants)


def main():
    count = 0
    for capability, memory in TARGETS.items():
        overlap = {"OVERLAP": capability >= 90}
        for (rows, mode), (dtype, half) in MODES.items():
            for batch in (32, 64, 128):
                if fused.choose_path(batch, batch, dtype, False, memory) != "whole":
                    continue
                block, warps, stages, *_ = fused.tiling(batch, 3 * 224 * 224, mode, memory)
                tiles = {"BLOCK_OUT": batch, "BLOCK_IN": batch, "BLOCK": block, "STAGES": stages}
                whole = tiles | {"TMA": False, "EVEN": True, "MODE": mode, **overlap}
                compile_for(capability, device.mix_whole_kernel, rows, half, whole, warps)
                count += 1
            loop = LOOP | {"MODE": mode, **overlap}
            compile_for(capability, device.mix_loop_kernel, rows, half, loop)
            gather = {"MODE": mode, "BLOCK": 128, **overlap}
            compile_for(capability, device.mix_gather_kernel, rows, half, gather)
            block, warps = few.tiling(3 * 224 * 224, dtype)
            # all kinds for one dtype, the largest for the others
            for kind in FEWS.values() if mode == "split3" else [FEWS["everything"]]:
                constants = FEW | kind | {"MODE": mode, "BLOCK": block, "CHUNK": 32}
                compile_for(capability, few_kernel, rows, half, constants, warps)
                count += 1
            count += 2
        for law, digits, matrix in [
            ({}, False, "halves"),
            ({"GAMMA_KIND": "tensor"}, True, "plain"),
            ({"GAMMA_KIND": "range"}, True, "none"),
            ({}, True, "halves"),
        ]:
            plan = PLAN | law | {"DIGITS": digits, "MATRIX": matrix, "BLOCK": 32, **overlap}
            compile_for(capability, device.plan_kernel, "fp32", "bf16", plan)
            count += 1
    print(f"compiled {count}")


if __name__ == "__main__":
    main()
