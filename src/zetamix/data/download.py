"""Getting at the files of a dataset of the catalogue: those that are here, or a download."""

from collections.abc import Iterator
from pathlib import Path

from zetamix.data.archives import download, find_path, md5_of, unpack, verify
from zetamix.data.catalogue import CATALOGUE
from zetamix.data.catalogue.spec import DatasetSpec, RemoteFile
from zetamix.data.errors import DataError, DatasetNotFoundError
from zetamix.data.source import Progress, resolve_data_dir


def bases(spec: DatasetSpec, data_dir: Path) -> Iterator[Path]:
    """Where the files of a dataset may be: its own folder, then `data_dir` itself."""
    yield data_dir / spec.home
    if not spec.own_folder:
        yield data_dir


def files_here(spec: DatasetSpec, data_dir: Path) -> Path | None:
    """The folder that holds all needed files of a dataset, unpacked or not."""
    for base in bases(spec, data_dir):
        if base.is_dir() and _complete(spec, base):
            return base
    return None


def obtain(
    spec: DatasetSpec, data_dir: Path, *, fetch: bool, progress: Progress | None = None
) -> Path:
    """The folder with the files of a dataset, unpacked and verified; `fetch` allows downloads."""
    base = files_here(spec, data_dir)
    if base is None:
        if not (fetch and spec.access == "download"):
            raise DatasetNotFoundError(how_to_get(spec, data_dir))
        base = data_dir / spec.home
        for archive in spec.archives:
            if _present(archive, base) is None and archive.urls:
                download(archive.urls, base / archive.file, archive.md5, progress)
    for archive in spec.archives:
        file = find_path(base, archive.file)
        if find_path(base, archive.result) is None and file is not None:
            # some distributors compress the files anew, so what is inside counts where it is known
            if archive.md5 is not None and not _known_inside(spec, archive):
                _verify_archive(file, archive.md5)
            unpack(file, base / archive.makes, progress)
        elif not archive.makes and archive.md5 is not None:
            _verify_archive(_existing(base, archive.file), archive.md5)
    for name, md5 in spec.checksums.items():
        verify(_existing(base, name), md5)
    return base


def how_to_get(spec: DatasetSpec, data_dir: Path) -> str:
    """What a user has to do for a dataset that is not here."""
    missing = ""
    for base in bases(spec, data_dir):
        if _some(spec, base):
            names = [a.result for a in spec.archives if a.needed and _present(a, base) is None]
            missing = f" {base} holds a part of it, but not {', '.join(names)}."
            break
    said = [
        f"{spec.title} ({spec.name}) is not in {data_dir}.{missing}",
        stand_in_hint(spec, data_dir),
    ]
    return " ".join([*filter(None, said), next_step(spec, data_dir)])


def stand_in_hint(spec: DatasetSpec, data_dir: Path) -> str:
    """How to use an archive of one's own in place of the official files; "" where none is taken."""
    if spec.access == "built in" or spec.group == "medmnist":
        return ""
    arrays = ", ".join(f"{split}_images, {split}_labels" for split in spec.sizes)
    sizes = ", ".join(f"{count:,} {split}" for split, count in spec.sizes.items())
    return (
        f"If you have its images as arrays, {data_dir / f'{spec.name}.npz'} in the MedMNIST layout "
        f"({arrays}; {sizes}) is taken as well."
    )


def next_step(spec: DatasetSpec, data_dir: Path) -> str:
    """Where to get a dataset, and which files to put where."""
    steps = spec.steps.format(folder=data_dir / spec.home)
    if spec.access == "download":
        where = "" if data_dir == resolve_data_dir(None) else f" --data-dir {data_dir}"
        return f"Download and prepare it with: zetamix data prepare {spec.name}{where}"
    if spec.access == "tool":
        return f"Get it from {spec.where} with: {steps}"
    return f"It does not download by itself ({spec.licence}): at {spec.where}, {steps}."


def _complete(spec: DatasetSpec, base: Path) -> bool:
    return _some(spec, base) and all(
        _present(archive, base) is not None for archive in spec.archives if archive.needed
    )


def _some(spec: DatasetSpec, base: Path) -> bool:
    return base.is_dir() and any(_present(archive, base) is not None for archive in spec.archives)


def _present(archive: RemoteFile, base: Path) -> Path | None:
    """Where an archive's content is, or else the archive itself."""
    for name in (archive.result, archive.file, *archive.instead):
        found = find_path(base, name)
        if found is not None:
            return found
    return None


def _known_inside(spec: DatasetSpec, archive: RemoteFile) -> bool:
    """Whether checksums are known of what unpacking an archive gives."""
    return any(f"{name}/".startswith(f"{archive.makes}/") for name in spec.checksums)


def _existing(base: Path, name: str) -> Path:
    found = find_path(base, name)
    if found is None:
        raise DataError(f"{base / name} is missing. Unpack or download the dataset again.")
    return found


def _verify_archive(file: Path, md5: str) -> None:
    """As `verify`, with a hint where the file is that of another dataset of the catalogue."""
    found = md5_of(file)
    for spec in CATALOGUE.values():
        for archive in spec.archives:
            if found == archive.md5 != md5:
                raise DataError(
                    f"{file} is the file of {spec.name} (md5 {found}; expected {md5}). Name it "
                    f"{archive.file} to use it as that."
                )
    verify(file, md5)
