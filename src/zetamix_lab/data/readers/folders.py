"""A user's images in folders: `class/…`, or `train|val|test/class/…`."""

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from zetamix_lab.data.errors import DataError, OnProblem, raise_problems
from zetamix_lab.data.image_files import images_below, is_image, subfolders
from zetamix_lab.data.sample_table import SPLIT_NAMES, SampleTable

LAYOUT = (
    "expected one folder per class with its images (class/…), or the same in each of train, val "
    "and test (train/class/…)"
)


def from_folder(path: Path, on_problem: OnProblem = raise_problems) -> SampleTable:
    """The images of a folder, whose classes are the names of their folders."""
    folders = subfolders(path)
    loose = sorted(entry for entry in path.iterdir() if is_image(entry))
    if loose or not folders:
        detail = f"the image {loose[0].name} is not in a class folder" if loose else "no folders"
        problem = f"{path}: {detail}; {LAYOUT}. Or pass a .csv file with the classes."
        (on_problem if folders else raise_problems)([problem])
    files: list[Path] = []
    rows: list[tuple[str, str, str]] = []
    for split, folder in _split_folders(path, folders, on_problem).items():
        before = len(files)
        for entry in subfolders(folder):
            images = images_below(entry)
            if not images:
                on_problem([f"{entry} contains no images. Add images, or delete the folder."])
            files += images
            rows += [(split, entry.name, os.path.relpath(image, path)) for image in images]
        if len(files) == before:
            on_problem([f"{folder} contains no images; {LAYOUT}."])
    if not rows:
        raise DataError(f"{path} contains no images; {LAYOUT}.")
    # names of files may be no text, which only objects hold
    frame = pd.DataFrame(rows, columns=["split", "label", "name"], dtype=object)
    return SampleTable(
        path=path,
        kind="a folder of images",
        frame=frame.assign(place=frame["name"]),
        images=files,
        notes=_ignored_files(path),
    )


def _split_folders(path: Path, folders: Sequence[Path], on_problem: OnProblem) -> dict[str, Path]:
    """The folder of each split; the whole folder is train if none has that name."""
    by_split = {folder: SPLIT_NAMES.get(folder.name.lower(), "") for folder in folders}
    if "train" not in by_split.values():
        return {"train": path}
    splits: dict[str, Path] = {}
    for folder, split in by_split.items():
        if not split or splits.setdefault(split, folder) != folder:
            other = splits[split].name if split else "train"
            on_problem([f"{path}: unexpected folder {folder.name} next to {other}; {LAYOUT}."])
    return splits


def _ignored_files(path: Path) -> tuple[str, ...]:
    """A note about files that are no images by their name."""
    others = [
        file.relative_to(path)
        for file in sorted(path.rglob("[!.]*"))
        if file.is_file() and not is_image(file)
    ]
    more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
    return (f"ignored non-image files: {others[0]}{more}",) if others else ()
