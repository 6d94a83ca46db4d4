"""Where a number was measured: machine, versions, commit."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

import torch

from zetamix.text import counted


def describe_machine(device: torch.device) -> dict[str, str]:
    """Everything a reader needs to place a time; nothing that identifies the machine itself."""
    facts = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
        facts["cuda"] = str(torch.version.cuda)
    for package in ("triton", "torchvision", "torchmetrics", "timm", "kornia", "zetamix"):
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = _commit()
    if commit:
        facts["commit"] = commit
    # as a shell takes it again, whatever is in a path
    facts["command"] = shlex.join(["zetamix", *sys.argv[1:]])
    return facts


def machine_line(facts: dict[str, str]) -> str:
    where = facts.get("gpu", f"{facts['processor']}, {counted(int(facts['threads']), 'thread')}")
    packages = [f"{name} {facts[name]}" for name in ("torch", "triton") if name in facts]
    commit = [f"commit {facts['commit']}"] if "commit" in facts else []
    return " · ".join([where, *packages, *commit])


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of the checkout that this code runs from, if it does.

    A copy without its history can be told through the variable ZETAMIX_COMMIT.
    """
    if "ZETAMIX_COMMIT" in os.environ:
        return os.environ["ZETAMIX_COMMIT"]
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "--short=10", "HEAD")
        # results are written into the checkout too: what counts is the code they come from
        changed = _git(root, "status", "--porcelain", "--", "src")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
