"""The catalogue against itself, against torchvision, and against the list of the paper."""

import re

import miniatures
import pytest
import torchvision.datasets as tv
from typer.testing import CliRunner

from paper.__main__ import data_app
from paper.datasets import CATALOGUE
from paper.datasets.readers import READERS

NATURAL = ["mnist", "fashion_mnist", "cifar10", "cifar100", "stl10", "imagenette", "imagewoof"]
SKIN = ["isic2016", "isic2017", "isic2018", "msk", "uda", "dermofit", "derm7pt_clinical"]
SKIN += ["derm7pt_dermoscopic", "ph2", "mednode"]
MEDMNIST = ["pathmnist", "dermamnist", "octmnist", "pneumoniamnist", "breastmnist"]
MEDMNIST += ["organmnist_axial", "organmnist_coronal", "organmnist_sagittal"]
TODAY = ["organamnist", "organcmnist", "organsmnist"]
MADE = ["crescents", "spirals", "helix", "helix12", "paraboloid"]


def test_every_dataset_is_there():
    assert len(NATURAL + SKIN + MEDMNIST) == 25
    assert list(CATALOGUE) == NATURAL + SKIN + MEDMNIST + TODAY + MADE
    assert all(name == spec.name for name, spec in CATALOGUE.items())
    # every dataset with files has a reader and a miniature
    assert list(miniatures.NAMES) == NATURAL + SKIN + MEDMNIST + TODAY
    assert {spec.reader for spec in CATALOGUE.values()} == {*READERS, ""}


@pytest.mark.parametrize("spec", CATALOGUE.values(), ids=CATALOGUE.keys())
def test_a_table_is_complete(spec):
    assert len(set(spec.classes)) == len(spec.classes)
    for split, counts in spec.counts.items():
        assert len(counts) == len(spec.classes)
        assert sum(counts) == (sum(spec.sizes.values()) if split == "all" else spec.sizes[split])
    assert ("all" in spec.counts) == (spec.split == "made")
    assert spec.licence
    assert spec.url or spec.split == "drawn"
    required = [file for file in spec.files if file.required]
    if spec.access == "download":
        assert bool(required) == (spec.split != "drawn")
        assert all(file.url for file in required)
    else:
        assert "{folder}" in spec.steps
        assert not any(file.url for file in spec.files)
    md5s = [file.md5 for file in spec.files if file.md5] + list(spec.checksums.values())
    assert all(re.fullmatch("[0-9a-f]{32}", md5) for md5 in md5s)


def test_no_two_files_share_a_checksum():
    specs = CATALOGUE.values()
    md5s = [file.md5 for spec in specs for file in spec.files if file.md5]
    md5s += [md5 for spec in specs for md5 in spec.checksums.values()]
    assert len(md5s) == len(set(md5s)) == 2 + 11 + 8 + 7 + 3 + 4


def test_files_are_torchvisions():
    for name, kind in (("mnist", tv.MNIST), ("fashion_mnist", tv.FashionMNIST)):
        spec, files = CATALOGUE[name], [file for file, _ in kind.resources]
        assert [f.path for f in spec.files] == [f"{kind.__name__}/raw/{file}" for file in files]
        assert [f.url for f in spec.files] == [kind.mirrors[0] + file for file in files]
        assert list(spec.checksums) == [f.unpacks_to for f in spec.files]
    for name, kind in (("cifar10", tv.CIFAR10), ("cifar100", tv.CIFAR100), ("stl10", tv.STL10)):
        spec, folder = CATALOGUE[name], kind.base_folder
        (file,) = spec.files
        assert (file.path, file.url, file.unpacks_to) == (kind.filename, kind.url, folder)
        theirs = {f"{folder}/{name}": md5 for name, md5 in kind.train_list + kind.test_list}
        if hasattr(kind, "meta"):
            theirs[f"{folder}/{kind.meta['filename']}"] = kind.meta["md5"]
        theirs.pop("stl10_binary/unlabeled_X.bin", None)
        assert spec.checksums == theirs
    (file,) = CATALOGUE["imagenette"].files
    assert (file.url, file.md5) == tv.Imagenette._ARCHIVES["full"]
    theirs = {wnid: names[0] for wnid, names in tv.Imagenette._WNID_TO_CLASS.items()}
    assert theirs == CATALOGUE["imagenette"].labels
    assert list(CATALOGUE["fashion_mnist"].classes) == tv.FashionMNIST.classes


def test_classes_are_in_the_order_of_their_files():
    for name in ("imagenette", "imagewoof"):
        spec = CATALOGUE[name]
        assert sorted(spec.labels) == list(spec.labels)
        assert tuple(spec.labels.values()) == spec.classes
    assert sorted(CATALOGUE["cifar100"].classes) == list(CATALOGUE["cifar100"].classes)
    assert len(CATALOGUE["cifar100"].classes) == 100


def test_skin_is_cropped_scaled_and_reported_as_in_the_paper():
    skin = [CATALOGUE[name] for name in SKIN]
    assert {(s.fit.size, s.fit.crop, s.shape) for s in skin} == {(256, 0.8, (3, 256, 256))}
    reported = {name: spec.reported for name, spec in CATALOGUE.items() if spec.reported != "test"}
    assert reported == {"isic2018": "val"}


def test_the_command_lists_describes_and_prepares(tmp_path):
    """`python -m paper data`: all datasets, what is missing and how to get it."""

    def run(*arguments, status=0):
        result = CliRunner().invoke(data_app, [*arguments, "--data-dir", str(tmp_path)])
        assert result.exit_code == status, result.output
        return " ".join(result.stdout.split())

    listed = run()
    assert all(f" {name} {sum(CATALOGUE[name].sizes.values()):,} " in listed for name in CATALOGUE)
    assert "put release_v0.zip" in run("derm7pt_clinical")
    run("--prepare", status=2)
    with miniatures.installed("uda", data_dir=tmp_path):
        assert "files, not prepared: python -m paper data uda --prepare" in run("uda")
        assert "train 14, val 3, test 4 from" in run("uda", "--prepare")
        assert "fingerprint" in run("uda")
        run("uba", status=1)
