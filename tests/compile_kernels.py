"""Compile every kernel for real GPUs, on a machine that has none. Run by `test_kernels.py`.

A process of its own, because there the kernels are compiled and not interpreted.
"""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from zetamix.kernels import device

POINTERS = {"seed_p": "*i64", "gamma_p": "*fp64", "labels_p": "*i64", "indices_p": "*i64"}
POINTERS |= {"weights_p": "*fp32", "targets_p": "*fp32", "matrix_p": "*bf16"}
NUMBERS = {"number": "fp32", "offset": "i64"}
TILES = {"BLOCK_OUT": 32, "BLOCK_IN": 32, "BLOCK": 64, "STAGES": 3}
PLAN = {"SELF": True, "PLAN": True, "TARGETS": True, "IGNORE": True, "CLASS_BLOCK": 16}


def compile_for(capability, kernel, rows, half, constants):
    signature = {name: NUMBERS.get(name, POINTERS.get(name, "i32")) for name in kernel.arg_names}
    signature |= dict.fromkeys(("rows_p", "out_p", "x_desc", "out_desc"), f"*{rows}")
    signature |= {"matrix_p": f"*{half}"} | dict.fromkeys(constants, "constexpr")
    signature = {name: signature[name] for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, places)
    options = {"num_warps": 4, "debug": kernel is device.plan_kernel, "sanitize_overflow": False}
    triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def main():
    count = 0
    for capability in (80, 90):
        for rows, half, mode in [
            ("fp32", "bf16", "split3"),
            ("fp32", "bf16", "split2"),
            ("bf16", "bf16", "half"),
            ("fp16", "fp16", "half"),
            ("u8", "bf16", "bytes"),
        ]:
            whole = TILES | {"TMA": False, "EVEN": False, "MODE": mode}
            compile_for(capability, device.mix_whole_kernel, rows, half, whole)
            compile_for(capability, device.mix_loop_kernel, rows, half, TILES | {"MODE": mode})
            gather = {"MODE": mode, "BLOCK": 128}
            compile_for(capability, device.mix_gather_kernel, rows, half, gather)
            count += 3
        for law, digits, matrix in [
            ("zeta", False, "halves"),
            ("zetas", True, "plain"),
            ("mixup", True, "halves"),
            ("mixup1/batch", False, "none"),
        ]:
            plan = PLAN | {"LAW": law, "DIGITS": digits, "MATRIX": matrix, "BLOCK": 32}
            compile_for(capability, device.plan_kernel, "fp32", "bf16", plan)
            count += 1
    print(f"compiled {count}")


if __name__ == "__main__":
    main()
