"""Every dataset of the catalogue, read from a miniature in its exact layout."""

import shutil
from dataclasses import replace

import miniatures
import pytest
import torch
from miniatures import build, installed, shade

from zetamix import data
from zetamix.data.catalogue import CATALOGUE


def sizes(dataset):
    return {name: len(split) for name, split in dataset.splits.items()}


def counts(dataset, made):
    found = {name: tuple(split.counts().tolist()) for name, split in dataset.splits.items()}
    return {"all": tuple(sum(c) for c in zip(*found.values(), strict=True))} if made else found


def edit(path, change):
    path.write_text(change(path.read_text()))


@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "archives"])
@pytest.mark.parametrize("name", miniatures.NAMES)
def test_a_miniature_is_read(name, packed, tmp_path):
    with installed(name, data_dir=tmp_path, packed=packed) as specs:
        spec = specs[name]
        dataset = data.load(name)
        assert dataset.classes == CATALOGUE[name].classes == spec.classes
        assert sizes(dataset) == spec.sizes
        assert counts(dataset, spec.split == "made") == spec.counts
        for split in dataset.splits.values():
            assert (split.samples.dtype, split.shape) == (torch.uint8, spec.shape)
            assert split.labels.dtype == torch.int64
            shows_its_class(split, len(spec.classes))
        assert data.check(name).ok


def shows_its_class(split, classes):
    """The upper left corner of every image has the shade of its label."""
    seen = split.samples[:, 0, 2, 2].long()
    wanted = torch.tensor([shade(int(label), classes) for label in split.labels])
    assert (seen - wanted).abs().max().item() <= 100 // classes


@pytest.mark.parametrize("name", ["cifar10", "stl10", "pathmnist", "imagenette", "isic2017"])
def test_images_stand_upright(name, tmp_path):
    with installed(name, data_dir=tmp_path):
        blue = data.load(name).test.samples[:, 2].float()
    assert (blue.diff(dim=1).mean() > 0.5).item()
    assert (blue.diff(dim=2).abs().max() < 8).item()


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100", "stl10", "imagewoof"])
def test_files_are_found_where_torchvision_puts_them(name, tmp_path):
    spec = build(name, tmp_path / "elsewhere")
    shutil.move(tmp_path / "elsewhere" / name, tmp_path / "root")
    assert sizes(data.load(spec, tmp_path / "root")) == spec.sizes


@pytest.mark.parametrize("name", ["dermofit", "msk"])
def test_files_without_telling_names_are_not_looked_for_in_the_root(name, tmp_path):
    spec = build(name, tmp_path / "elsewhere")
    shutil.move(tmp_path / "elsewhere" / name, tmp_path / "root")
    with pytest.raises(data.DatasetNotFoundError, match=f"is not in {tmp_path / 'root'}"):
        data.load(spec, tmp_path / "root")


def test_made_splits_follow_the_seed_and_official_ones_do_not(tmp_path):
    with installed("uda", "isic2016", data_dir=tmp_path):
        assert data.load("uda").fingerprint == data.load("uda", seed=0).fingerprint
        assert data.load("uda").fingerprint != data.load("uda", seed=1).fingerprint
        assert data.load("isic2016").fingerprint == data.load("isic2016", seed=1).fingerprint
        assert "val and test are split off train by us: stratified, 7:1:2, seed 1" in (
            data.load("uda", seed=1).notes
        )


def test_made_splits_do_not_depend_on_the_order_of_a_table(tmp_path):
    spec = build("uda", tmp_path)
    before = data.load(spec, tmp_path).fingerprint
    table = tmp_path / "uda" / "metadata.csv"
    header, *rows = table.read_text().splitlines()
    table.write_text("\n".join([header, *reversed(rows)]) + "\n")
    assert data.prepare(spec, tmp_path, again=True).fingerprint == before


def test_samples_know_their_files(tmp_path):
    with installed("isic2017", data_dir=tmp_path):
        names = data.load("isic2017").val.names()
    assert names[0] == "ISIC-2017_Validation_Data/ISIC_0100000.jpg"
    assert len(names) == 4


def test_the_unpacked_files_count_where_their_checksums_are_known(tmp_path):
    # Debian compresses Fashion-MNIST anew
    spec = build("fashion_mnist", tmp_path, packed=True)
    other = replace(spec, archives=tuple(replace(a, md5="0" * 32) for a in spec.archives))
    assert sizes(data.load(other, tmp_path)) == spec.sizes


def test_an_npz_stands_in_for_a_dataset(tmp_path):
    spec = replace(CATALOGUE["cifar10"], sizes={"train": 20, "test": 10}, counts={})
    found = {"train": [2] * 10, "test": [1] * 10}
    miniatures.write_npz(tmp_path / "cifar10.npz", found, (3, 32, 32))
    dataset = data.load(spec, tmp_path)
    assert dataset.classes == spec.classes
    assert list(dataset.splits) == ["train", "test"]
    assert dataset.origin == f"{tmp_path / 'cifar10.npz'}, .npz in the MedMNIST layout"
    assert dataset.notes[-1].startswith("read from cifar10.npz, not from the official files")


def test_the_official_files_come_first(tmp_path):
    spec = build("cifar10", tmp_path)
    (tmp_path / "cifar10.npz").write_bytes(b"not even read")
    assert data.load(spec, tmp_path).origin == f"the official files in {tmp_path / 'cifar10'}"


def test_an_npz_of_other_sizes_does_not_stand_in(tmp_path):
    miniatures.write_npz(tmp_path / "cifar10.npz", {"train": [2] * 10}, (3, 32, 32))
    with pytest.raises(data.DataError) as caught:
        data.load("cifar10", tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'cifar10.npz'} cannot stand in for CIFAR-10: expected 50,000 train, 10,000 "
        "test of shape [3, 32, 32], got 20 train of [3, 32, 32]. To use it as data of your own, "
        "give its path."
    )


# variants of layouts that are in circulation


def test_isic2016_with_a_header(tmp_path):
    spec = build("isic2016", tmp_path)
    table = tmp_path / "isic2016" / "ISBI2016_ISIC_Part3_Test_GroundTruth.csv"
    edit(table, lambda text: "image_id,melanoma\n" + text)
    assert sizes(data.load(spec, tmp_path)) == spec.sizes


@pytest.mark.parametrize("delimiter", [",", "\t"], ids=["comma", "tab"])
def test_isic2018_from_ham10000(tmp_path, delimiter):
    official = data.load(build("isic2018", tmp_path / "official"), tmp_path / "official")
    spec = miniatures.ham10000(tmp_path / "ham", delimiter)
    assert data.load(spec, tmp_path / "ham").train.counts().tolist() == (
        official.train.counts().tolist()
    )


def test_isic2018_without_its_test_split_says_so(tmp_path):
    spec = build("isic2018", tmp_path)
    shutil.rmtree(tmp_path / "isic2018" / "ISIC2018_Task3_Test_Input")
    shutil.rmtree(tmp_path / "isic2018" / "ISIC2018_Task3_Test_GroundTruth")
    dataset = data.load(spec, tmp_path)
    assert list(dataset.splits) == ["train", "val"]
    assert dataset.notes[-1] == "the official test split is not here; the paper does not use it"


def test_dermofit_in_one_folder_with_its_list(tmp_path):
    spec = build("dermofit", tmp_path)
    base = tmp_path / "dermofit"
    for photo in [*base.rglob("*.png")]:
        shutil.move(photo, base / photo.name)
    for folder in [path for path in base.iterdir() if path.is_dir()]:
        shutil.rmtree(folder)
    assert counts(data.load(spec, tmp_path), made=True) == spec.counts


def test_dermofit_in_lower_case(tmp_path):
    spec = build("dermofit", tmp_path)
    for folder in [path for path in (tmp_path / "dermofit").iterdir() if path.is_dir()]:
        folder.rename(folder.with_name(folder.name.lower()))
    assert counts(data.load(spec, tmp_path), made=True) == spec.counts


def test_derm7pt_both_kinds_share_one_archive(tmp_path):
    names = ("derm7pt_clinical", "derm7pt_dermoscopic")
    clinical = build(names[0], tmp_path, packed=True)
    dermoscopic = replace(CATALOGUE[names[1]], sizes=clinical.sizes, counts=clinical.counts)
    first = data.load(clinical, tmp_path)
    second = data.load(dermoscopic, tmp_path)
    assert first.train.names()[5].startswith("release_v0/images/nel/")
    assert second.train.names()[5].startswith("release_v0/images/Aal/")


def test_ph2_by_its_spreadsheet(tmp_path):
    spec = miniatures.ph2_with_sheet(tmp_path)
    assert counts(data.load(spec, tmp_path), made=True) == spec.counts


def test_today_and_yesterday_of_the_isic_archive_are_the_same(tmp_path):
    spec = build("uda", tmp_path)
    table = tmp_path / "uda" / "metadata.csv"
    edit(table, lambda text: text.replace("isic_id", "name").replace(",diagnosis", ",Diagnosis"))
    assert counts(data.load(spec, tmp_path), made=True) == spec.counts


def test_an_archive_that_has_grown_makes_a_note(tmp_path):
    spec = build("uda", tmp_path)
    smaller = replace(spec, sizes={"train": 13, "val": 3, "test": 4})
    dataset = data.load(smaller, tmp_path)
    assert dataset.notes[-1] == "expected 13 train, 3 val, 4 test, found 14 train, 3 val, 4 test"


# what is not here


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "cifar100",
            "zetamix data prepare cifar100 --data-dir {data_dir}",
        ),
        ("msk", "isic image download --collections 289,290,288,287,286 {data_dir}/msk"),
        ("dermofit", "It does not download by itself (signed, with a fee): at https://licensing"),
        ("derm7pt_clinical", "ask for a login, then put release_v0.zip, or the folder release_v0"),
        ("ph2", "put the folder PH2Dataset into {data_dir}/ph2."),
    ],
)
def test_what_is_not_here_says_how_to_get_it(name, message, tmp_path):
    with pytest.raises(data.DatasetNotFoundError) as caught:
        data.load(name, tmp_path)
    assert message.format(data_dir=tmp_path) in str(caught.value)


def test_what_is_here_in_part_says_what_is_missing(tmp_path):
    build("isic2016", tmp_path)
    (tmp_path / "isic2016" / "ISBI2016_ISIC_Part3_Test_GroundTruth.csv").unlink()
    with pytest.raises(data.DatasetNotFoundError) as caught:
        data.load("isic2016", tmp_path)
    assert (
        f"{tmp_path / 'isic2016'} holds a part of it, but not "
        "ISBI2016_ISIC_Part3_Test_GroundTruth.csv."
    ) in str(caught.value)
