"""Files of a catalogued dataset: locate, download, verify, unpack."""

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from http.client import HTTPException
from pathlib import Path
from typing import IO

from paper.datasets.catalogue import DatasetSpec
from zetamix_lab.atomic_io import hash_file, write_file
from zetamix_lab.data.errors import DataError, DatasetNotFoundError
from zetamix_lab.data.source import Progress, resolve_data_dir
from zetamix_lab.text import reason

CHUNK = 1 << 20
TIMEOUT_S = 60
DAMAGED = (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


def obtain(
    spec: DatasetSpec, data_dir: Path, *, fetch: bool, progress: Progress | None = None
) -> Path:
    """The folder with the files of a dataset, unpacked and verified; `fetch` allows downloads."""
    base = locate(spec, data_dir)
    if base is None:
        if not (fetch and spec.access == "download"):
            raise DatasetNotFoundError(not_found_message(spec, data_dir))
        base = data_dir / spec.subfolder
        for file in spec.files:
            if not file.exists(base):
                download(file.url, base / file.path, file.md5, progress)
    for file in spec.files:
        path = base / file.path
        # a file that is not unpacked is verified by its reader, which accepts a copy as well
        if file.unpacks_to and path.exists() and not (base / file.unpacks_to).exists():
            if file.md5 is not None:
                _verify(path, file.md5)
            unpack(path, base / file.unpacks_to, progress)
    for name, md5 in spec.checksums.items():
        _verify(base / name, md5)
    return base


def locate(spec: DatasetSpec, data_dir: Path) -> Path | None:
    """The folder that holds all required files of a dataset, unpacked or not."""
    return next((base for base in _partial(spec, data_dir) if not _missing(spec, base)), None)


def not_found_message(spec: DatasetSpec, data_dir: Path) -> str:
    """Explains how to get a dataset that is not on this machine."""
    text = f"{spec.title} ({spec.name}) is not in {data_dir}."
    for base in _partial(spec, data_dir)[:1]:
        text += f" {base} is incomplete: {', '.join(_missing(spec, base))} not found."
    return " ".join([text, copy_hint(spec, data_dir), download_hint(spec, data_dir)])


def copy_hint(spec: DatasetSpec, data_dir: Path) -> str:
    """How to use a copy of the images instead of the official files; "" for built-in data."""
    if spec.access == "built in":
        return ""
    arrays = ", ".join(f"{split}_images, {split}_labels" for split in spec.sizes)
    sizes = ", ".join(f"{count:,} {split}" for split, count in spec.sizes.items())
    return (
        f"If you have a copy ({sizes}), save it as {data_dir / f'{spec.name}.npz'} in the MedMNIST "
        f"layout ({arrays}), or as {'|'.join(spec.sizes)}/class/… in {data_dir / spec.name}, a "
        "folder, .tar or .zip."
    )


def download_hint(spec: DatasetSpec, data_dir: Path) -> str:
    """The command that downloads a dataset, or the steps to get it by hand."""
    steps = spec.steps.format(folder=data_dir / spec.subfolder)
    if spec.access == "download":
        option = "" if data_dir == resolve_data_dir(None) else f" --data-dir {data_dir}"
        return f"Download and prepare it with: python -m paper data prepare {spec.name}{option}"
    if spec.access == "tool":
        return f"Get it from {spec.url} with: {steps}"
    return f"It cannot be downloaded automatically ({spec.licence}). At {spec.url}, {steps}."


def download(
    url: str, path: Path, md5: str | None = None, progress: Progress | None = None
) -> None:
    """Download a file; it is created only when it is complete and verified."""
    digest = hashlib.md5(usedforsecurity=False)

    def write(file: IO[bytes]) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError("expected an http or https address")
        request = urllib.request.Request(url, headers={"User-Agent": "zetamix"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            total = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read(CHUNK):
                file.write(chunk)
                digest.update(chunk)
                if progress is not None:
                    progress(f"downloading {path.name}", file.tell(), max(total, file.tell()))
        if file.tell() < total:
            raise ValueError(f"the connection ended after {file.tell():,} of {total:,} bytes")
        if md5 is not None and digest.hexdigest() != md5:
            raise ValueError(f"the file has the md5 {digest.hexdigest()}, expected {md5}")

    try:
        write_file(path, write)
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or reason(error)
        if isinstance(error, urllib.error.HTTPError):
            why = f"the server returned {error.code} {error.reason}"
        raise DataError(
            f"{path.name} could not be downloaded from {url}: {why}. Try again later, or download "
            f"the file on another machine and save it as {path}."
        ) from None


def unpack(
    archive: Path, target: Path, progress: Progress | None = None, limit: int | None = None
) -> None:
    """Unpack a zip, tar or gz file to `target`, which is created atomically.

    No member is written outside the folder. Raises for an archive that unpacks to more than `limit`
    bytes; None means the free disk space.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    limit = shutil.disk_usage(target.parent).free if limit is None else limit
    if progress is not None:
        progress(f"unpacking {archive.name}", 0, 0)
    try:
        if archive.stat().st_size == 0:
            raise EOFError("it is empty")
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", suffix=".part", dir=target.parent
        ) as part:
            content = Path(part, "content")
            _extract(archive, content, limit)
            # the folder in it with the name of the target, or else everything
            inner = content / target.name
            try:
                os.rename(inner if inner.is_dir() else content, target)
            except OSError:
                # another process was faster
                if not target.exists():
                    raise
    except DAMAGED as error:
        raise DataError(
            f"{archive} cannot be unpacked: {reason(error)}. Delete it and download it again."
        ) from None


def _extract(archive: Path, content: Path, limit: int) -> None:
    def check(size: int) -> None:
        if size > limit:
            raise DataError(
                f"{archive} unpacks to more than {limit / 1e9:,.1f} GB, the available disk space."
            )

    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            check(sum(info.file_size for info in packed.infolist()))
            # zipfile drops drives, roots and ".." from names, and writes links as plain files
            packed.extractall(content)
    elif archive.suffix == ".gz" and not archive.name.endswith(".tar.gz"):
        with gzip.open(archive) as source, content.open("wb") as file:
            while chunk := source.read(CHUNK):
                check(file.tell() + len(chunk))
                file.write(chunk)
    else:
        with tarfile.open(archive) as tar:
            total = 0
            for member in tar:
                total += member.size
                check(total)
                # rejects devices, and links and paths that lead outside
                tar.extract(member, content, filter="data")


def _partial(spec: DatasetSpec, data_dir: Path) -> list[Path]:
    """Folders with some files: the dataset's own, or the data folder itself, as in torchvision."""
    bases = [data_dir / spec.subfolder, *([] if spec.group == "skin" else [data_dir])]
    return [base for base in bases if any(file.exists(base) for file in spec.files)]


def _missing(spec: DatasetSpec, base: Path) -> list[str]:
    return [file.content for file in spec.files if file.required and not file.exists(base)]


def _verify(path: Path, md5: str) -> None:
    if not path.exists():
        raise DataError(f"{path} is missing. Unpack or download the dataset again.")
    actual = hash_file(path, "md5")
    if actual != md5:
        raise DataError(
            f"{path} has the md5 {actual}, expected {md5}: it is damaged, or another version. "
            "Delete it, and the archive it came from, and download it again."
        )
