"""Files of a catalogued dataset: locate, download, verify, unpack."""

import gzip
import shutil
import tarfile
import zipfile
import zlib
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory

from paper.datasets.catalogue import DatasetSpec
from zetamix_lab.atomic_io import hash_file
from zetamix_lab.data.errors import DataError, DatasetNotFoundError
from zetamix_lab.data.source import Progress, resolve_data_dir
from zetamix_lab.text import reason

DAMAGED = (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


def obtain(
    spec: DatasetSpec, data_dir: Path, *, fetch: bool, progress: Progress | None = None
) -> Path:
    """The folder with the files of a dataset, unpacked and verified; `fetch` allows downloads."""
    base = locate(spec, data_dir)
    if base is None:
        if not (fetch and spec.access == "download"):
            raise DatasetNotFoundError(not_found_message(spec, data_dir))
        base = data_dir / spec.folder
        for file in spec.files:
            if not file.exists(base):
                download(file.url, base / file.path, file.md5)
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
    return next((base for base, absent in _folders(spec, data_dir) if not absent), None)


def not_found_message(spec: DatasetSpec, data_dir: Path) -> str:
    """Explains how to get a dataset that is not on this machine, or how to use a copy of it."""
    text = f"{spec.title} ({spec.name}) is not in {data_dir}."
    for base, absent in _folders(spec, data_dir)[:1]:
        text += f" {base} is incomplete: {', '.join(absent)} not found."
    arrays = ", ".join(f"{split}_images, {split}_labels" for split in spec.sizes)
    sizes = ", ".join(f"{count:,} {split}" for split, count in spec.sizes.items())
    text += (
        f" If you have a copy ({sizes}), save it as {data_dir / f'{spec.name}.npz'} in the "
        f"MedMNIST layout ({arrays}), or as {'|'.join(spec.sizes)}/class/… in "
        f"{data_dir / spec.name}, a folder, .tar or .zip. "
    )
    steps = spec.steps.format(folder=data_dir / spec.folder)
    if spec.access == "tool":
        return f"{text}Get it from {spec.url} with: {steps}"
    if spec.access == "request":
        return (
            f"{text}It cannot be downloaded automatically ({spec.licence}). At {spec.url}, {steps}."
        )
    option = "" if data_dir == resolve_data_dir(None) else f" --data-dir {data_dir}"
    return f"{text}Download and prepare it with: python -m paper data {spec.name} --prepare{option}"


def download(url: str, path: Path, md5: str | None = None) -> None:
    """Download a file; it is created only when it is complete and verified."""
    # imported here because it takes 1 s, and data on this machine need none of it
    from torchvision.datasets.utils import download_url

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as part:
            download_url(url, part, path.name, md5)
            Path(part, path.name).replace(path)
    except (OSError, HTTPException, RuntimeError, ValueError) as error:
        raise DataError(
            f"{path.name} could not be downloaded from {url}: {reason(error)}. Try again later, or "
            f"download the file on another machine and save it as {path}."
        ) from None


def unpack(archive: Path, target: Path, progress: Progress | None = None) -> None:
    """Unpack a zip, tar or gz file to `target`, which is created atomically.

    No member is written outside the folder.
    """
    if progress is not None:
        progress(f"unpacking {archive.name}", 0, 0)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if archive.stat().st_size == 0:
            raise EOFError("it is empty")
        with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as part:
            content = Path(part, "content")
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as packed:
                    # drops drives, roots and ".." from names, and writes links as plain files
                    packed.extractall(content)
            elif archive.suffix == ".gz" and not archive.name.endswith(".tar.gz"):
                with gzip.open(archive) as source, content.open("wb") as file:
                    shutil.copyfileobj(source, file)
            else:
                # rejects devices, and links and paths that lead outside
                shutil.unpack_archive(archive, content, "tar", filter="data")
            # the folder in it with the name of the target, or else everything
            inner = content / target.name
            try:
                (inner if inner.is_dir() else content).rename(target)
            except OSError:
                # another process was faster
                if not target.exists():
                    raise
    except DAMAGED as error:
        raise DataError(
            f"{archive} cannot be unpacked: {reason(error)}. Delete it and download it again."
        ) from None


def _folders(spec: DatasetSpec, data_dir: Path) -> list[tuple[Path, list[str]]]:
    """Folders with some files, and the required files that each lacks.

    They are the dataset's own, or the data folder itself, as in torchvision.
    """
    bases = [data_dir / spec.folder, *([] if spec.group == "skin" else [data_dir])]
    return [
        (base, [file.content for file in spec.files if file.required and not file.exists(base)])
        for base in bases
        if any(file.exists(base) for file in spec.files)
    ]


def _verify(path: Path, md5: str) -> None:
    if not path.exists():
        raise DataError(f"{path} is missing. Unpack or download the dataset again.")
    actual = hash_file(path, "md5")
    if actual != md5:
        raise DataError(
            f"{path} has the md5 {actual}, expected {md5}: it is damaged, or another version. "
            "Delete it, and the archive it came from, and download it again."
        )
