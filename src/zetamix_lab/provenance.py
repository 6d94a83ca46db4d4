"""Where a result comes from: machine, package versions, commit, command, files."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from zetamix_lab.atomic_io import hash_file
from zetamix_lab.text import plural

PACKAGES = ("triton", "torchvision", "torchmetrics", "timm", "kornia", "zetamix")


class FileChangedError(ValueError):
    """A file that a run needs is missing or has changed."""


@dataclass(frozen=True)
class FileRef:
    """A file that affects a result, such as initial weights: its path and checksum."""

    path: Path
    sha256: str

    @classmethod
    def read(cls, path: str | Path) -> "FileRef":
        """The file at `path` as it is now."""
        full = Path(path).expanduser().absolute()
        if not full.is_file():
            raise FileChangedError(f"{full} is not a file on this machine.")
        return cls(full, hash_file(full))

    def check(self) -> Path:
        """The path; raises unless the file is still there, with the same content."""
        if FileRef.read(self.path) != self:
            raise FileChangedError(
                f"{self.path} has changed since this run was set up: expected sha256 "
                f"{self.sha256[:12]}…. Restore it, or start a new run."
            )
        return self.path

    def __str__(self) -> str:
        return f"{self.path.name} (sha256 {self.sha256})"

    def as_dict(self) -> dict[str, str]:
        return {"file": self.path.name, "sha256": self.sha256, "path": str(self.path)}

    @classmethod
    def from_dict(cls, values: Mapping[str, str]) -> "FileRef":
        return cls(Path(values["path"]), values["sha256"])


def machine_info(device: torch.device, program: str = "zetamix") -> dict[str, str]:
    """Hardware, versions and command that explain a result; nothing that identifies the machine."""
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
        with suppress(importlib.metadata.PackageNotFoundError):
            info[package] = importlib.metadata.version(package)
    if commit := _commit():
        info["commit"] = commit
    # with relative paths, and quoted, so that a shell accepts it again
    arguments = [argument.replace(f"{Path.cwd()}{os.sep}", "") for argument in sys.argv[1:]]
    info["command"] = f"{program} {shlex.join(arguments)}".rstrip()
    return info


def machine_summary(info: dict[str, str]) -> str:
    """One line: the GPU or CPU, the versions of torch and triton, the commit."""
    cpu = f"{info['processor']}, {plural(int(info['threads']), 'thread')}"
    packages = [f"{name} {info[name]}" for name in ("torch", "triton") if name in info]
    commit = [f"commit {info['commit']}"] if "commit" in info else []
    return " · ".join([info.get("gpu", cpu), *packages, *commit])


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of the checkout that this code runs from; without git, of ZETAMIX_COMMIT."""
    if "ZETAMIX_COMMIT" in os.environ:
        return os.environ["ZETAMIX_COMMIT"]
    root = Path(__file__).resolve().parents[2]
    options: Any = {"cwd": root, "text": True, "timeout": 10, "stderr": subprocess.DEVNULL}
    with suppress(OSError, subprocess.SubprocessError):
        if (root / ".git").exists():
            head = subprocess.check_output(["git", "rev-parse", "--short=10", "HEAD"], **options)
            # results are written to the checkout as well; only changes in src count
            status = ["git", "status", "--porcelain", "--", "src"]
            changed = subprocess.check_output(status, **options)
            return f"{head.strip()}-dirty" if changed else str(head.strip())
    return None
