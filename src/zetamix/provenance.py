"""Where a result comes from: machine, package versions, commit, command."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

import torch

from zetamix.text import plural

PACKAGES = ("triton", "torchvision", "torchmetrics", "timm", "kornia", "zetamix")


def machine_info(device: torch.device) -> dict[str, str]:
    """Everything that explains a measured time, and nothing that identifies the machine."""
    info = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device.type == "cuda":
        info["gpu"] = torch.cuda.get_device_name(device)
        info["cuda"] = str(torch.version.cuda)
    for package in PACKAGES:
        try:
            info[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = _commit()
    if commit:
        info["commit"] = commit
    # quoted, so that a shell accepts it again
    info["command"] = shlex.join(["zetamix", *sys.argv[1:]])
    return info


def machine_summary(info: dict[str, str]) -> str:
    """One line for people: the GPU or CPU, the versions of torch and triton, the commit."""
    cpu = f"{info['processor']}, {plural(int(info['threads']), 'thread')}"
    packages = [f"{name} {info[name]}" for name in ("torch", "triton") if name in info]
    commit = [f"commit {info['commit']}"] if "commit" in info else []
    return " · ".join([info.get("gpu", cpu), *packages, *commit])


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of the checkout that this code runs from, or of the variable ZETAMIX_COMMIT."""
    if "ZETAMIX_COMMIT" in os.environ:
        return os.environ["ZETAMIX_COMMIT"]
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "--short=10", "HEAD")
        # results are written into the checkout too; only changed code makes it dirty
        changed = _git(root, "status", "--porcelain", "--", "src")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
