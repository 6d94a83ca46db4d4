"""The files of a dataset: found, downloaded, verified, and unpacked without trusting them."""

import gzip
import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from zetamix.atomic_io import write_file
from zetamix.data.errors import DataError
from zetamix.data.source import Progress

CHUNK = 1 << 20
TIMEOUT_S = 60
# images barely compress and the label files are small; the largest honest ratio here is MNIST's 5
BOMB_RATIO = 200
BOMB_FLOOR = 1 << 27
MOST_MEMBERS = 2_000_000

DAMAGED = (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


class Member(NamedTuple):
    """One entry of an archive, whatever its kind."""

    name: str
    size: int
    kind: str
    """file, folder, or what else it claims to be."""
    entry: Any


def download(urls: tuple[str, ...], path: Path, md5: str | None, progress: Progress | None) -> None:
    """Fetch the first of `urls` that works; the file appears only when it is whole and right."""
    problems = []
    for url in urls:
        try:
            return _fetch(url, path, md5, progress)
        except (OSError, HTTPException, ValueError) as error:
            problems.append(f"{url}: {_reason(error)}")
    raise DataError(
        f"{path.name} could not be downloaded. " + "; ".join(problems) + ". Try again later, or "
        f"fetch the file on another machine and put it at {path}."
    )


def verify(path: Path, md5: str) -> None:
    """Compare a file with the md5 that it must have."""
    found = md5_of(path)
    if found != md5:
        raise DataError(
            f"{path} has the md5 {found}, expected {md5}: it is damaged, or another version. "
            "Delete it, and the archive it came from, and get it again."
        )


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def unpack(archive: Path, target: Path, progress: Progress | None) -> None:
    """Unpack a zip, tar or gz file; `target` is what it holds, and appears complete or not at all.

    Refused are absolute paths, `..`, links, devices, and what grows beyond any reason.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if archive.stat().st_size == 0:
            raise EOFError("it is empty")
        if archive.suffix == ".gz" and not archive.name.endswith(".tar.gz"):
            _unpack_gz(archive, target)
            return
        room = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        try:
            with _opened(archive) as members:
                _extract(archive, members, room, progress)
            _put_in_place(room, target)
        finally:
            shutil.rmtree(room, ignore_errors=True)
    except DAMAGED as error:
        raise DataError(
            f"{archive} cannot be unpacked: {_reason(error)}. Delete it and get it again."
        ) from None


def find_path(base: Path, relative: str) -> Path | None:
    """`base / relative`, whatever its letters' case on disk; None if it is not there."""
    exact = base / relative
    if exact.exists():
        return exact
    here = base
    for part in PurePosixPath(relative).parts:
        if not here.is_dir():
            return None
        alike = [name for name in sorted(os.listdir(here)) if name.lower() == part.lower()]
        if not alike:
            return None
        here = here / alike[0]
    return here


def _fetch(url: str, path: Path, md5: str | None, progress: Progress | None) -> None:
    if not url.startswith(("http://", "https://")):
        raise ValueError("only http and https are fetched")
    request = urllib.request.Request(url, headers={"User-Agent": "zetamix"})
    digest = hashlib.md5(usedforsecurity=False)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        total = int(response.headers.get("Content-Length") or 0)

        def write(file: IO[bytes]) -> None:
            done = 0
            while chunk := response.read(CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(f"downloading {path.name}", done, max(total, done))
            if done < total:
                raise ValueError(f"the connection ended after {done:,} of {total:,} bytes")
            if md5 is not None and digest.hexdigest() != md5:
                raise ValueError(f"what came has the md5 {digest.hexdigest()}, expected {md5}")

        write_file(path, write)


@contextmanager
def _opened(archive: Path) -> Iterator[Iterator[tuple[Member, Any]]]:
    """Pairs of a member and a function that opens it."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as found:
            yield ((_zip_member(info), found.open) for info in found.infolist())
    else:
        with tarfile.open(archive) as tar:
            yield ((_tar_member(info), tar.extractfile) for info in tar)


def _zip_member(info: zipfile.ZipInfo) -> Member:
    mode = info.external_attr >> 16
    kind = "link" if stat.S_ISLNK(mode) else "folder" if info.is_dir() else "file"
    return Member(info.filename, info.file_size, kind, info)


def _tar_member(info: tarfile.TarInfo) -> Member:
    kinds = {"file": info.isfile(), "folder": info.isdir(), "link": info.issym() or info.islnk()}
    kind = next((name for name, is_it in kinds.items() if is_it), "device")
    return Member(info.name, info.size, kind, info)


def _extract(
    archive: Path, members: Iterator[tuple[Member, Any]], room: Path, progress: Progress | None
) -> None:
    limit = _limit(archive)
    done = 0
    for count, (member, opener) in enumerate(members):
        place = room / _checked_name(archive, member)
        if "__MACOSX" in place.parts or place.name.startswith("._"):
            continue
        if progress is not None and count % 64 == 0:
            progress(f"unpacking {archive.name}", done, 0)
        done += member.size
        if done > limit or count >= MOST_MEMBERS:
            raise _too_much(archive, limit)
        if member.kind == "folder":
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with opener(member.entry) as source, place.open("wb") as copy:
            shutil.copyfileobj(source, copy, CHUNK)


def _checked_name(archive: Path, member: Member) -> PurePosixPath:
    name = PurePosixPath(member.name)
    if member.kind not in ("file", "folder"):
        raise DataError(
            f"{archive} holds a {member.kind}, {member.name!r}. It is refused: an archive of data "
            "needs only files and folders. Get the archive from its official source."
        )
    outside = name.is_absolute() or ".." in name.parts or "\\" in member.name or ":" in member.name
    if outside or "\0" in member.name:
        raise DataError(
            f"{archive} holds {member.name!r}, which would be written outside of its folder. It is "
            "refused. Get the archive from its official source."
        )
    return name


def _unpack_gz(archive: Path, target: Path) -> None:
    limit = _limit(archive)

    def write(file: IO[bytes]) -> None:
        done = 0
        with gzip.open(archive) as source:
            while chunk := source.read(CHUNK):
                done += len(chunk)
                if done > limit:
                    raise _too_much(archive, limit)
                file.write(chunk)

    write_file(target, write)


def _limit(archive: Path) -> int:
    """The most bytes that may come out of an archive: a matter of its size, and of the disk."""
    most = max(BOMB_FLOOR, BOMB_RATIO * archive.stat().st_size)
    return min(most, shutil.disk_usage(archive.parent).free)


def _too_much(archive: Path, limit: int) -> DataError:
    return DataError(
        f"{archive} would unpack to more than {limit / 1e9:,.1f} GB, from "
        f"{archive.stat().st_size / 1e9:,.3f} GB: too much for a set of images, or for the disk. "
        "It is refused."
    )


def _put_in_place(room: Path, target: Path) -> None:
    """Move what was unpacked: a folder of the target's name, or else all of it as that folder."""
    inner = room / target.name
    made = inner if inner.is_dir() else room
    os.chmod(made, 0o755)
    try:
        os.rename(made, target)
    except OSError:
        # another process was faster
        if not target.is_dir():
            raise


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__
