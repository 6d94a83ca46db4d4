"""Broken label files and incomplete datasets: a sentence with file and row, and nothing left."""
# ruff: noqa: E501 (a message is compared in one piece, so it is written in one piece)

import pickle
import shutil
import zipfile
from dataclasses import replace

import miniatures
import numpy as np
import pytest
from miniatures import build, installed, picture, save

from zetamix import data
from zetamix.data.catalogue import CATALOGUE

# broken: each says which file and which row


def break_row(table, row, old, new):
    lines = table.read_text().split("\n")
    assert old in lines[row - 1]
    lines[row - 1] = lines[row - 1].replace(old, new)
    table.write_text("\n".join(lines))


def broken_isic2016_label(base):
    break_row(base / "ISBI2016_ISIC_Part3_Training_GroundTruth.csv", 3, "benign", "harmless")


def broken_isic2016_first_label(base):
    break_row(base / "ISBI2016_ISIC_Part3_Training_GroundTruth.csv", 1, "benign", "harmless")


def broken_isic2016_image(base):
    (base / "ISBI2016_ISIC_Part3_Test_Data" / "ISIC_0001002.jpg").unlink()


def broken_isic2016_cells(base):
    break_row(base / "ISBI2016_ISIC_Part3_Training_GroundTruth.csv", 4, "malignant", "malignant,1")


def broken_isic2017_columns(base):
    break_row(base / "ISIC-2017_Validation_Part3_GroundTruth.csv", 1, "melanoma", "mel")


def broken_isic2017_value(base):
    break_row(base / "ISIC-2017_Training_Part3_GroundTruth.csv", 2, "0.0,0.0", "0.5,0.0")


def broken_isic2017_both(base):
    break_row(base / "ISIC-2017_Training_Part3_GroundTruth.csv", 2, "0.0,0.0", "1.0,1.0")


def broken_isic2018_none(base):
    stem = "ISIC2018_Task3_Validation_GroundTruth"
    break_row(base / stem / f"{stem}.csv", 2, "1.0", "0.0")


def broken_isic2018_no_labels(base):
    (
        base
        / "ISIC2018_Task3_Validation_GroundTruth"
        / ("ISIC2018_Task3_Validation_GroundTruth.csv")
    ).unlink()


def broken_archive_columns(base):
    break_row(base / "metadata.csv", 1, ",diagnosis", ",said")


def broken_archive_id(base):
    break_row(base / "metadata.csv", 1, "isic_id", "number")


def broken_dermofit_folder(base):
    shutil.rmtree(base / "PYO")


def broken_derm7pt_diagnosis(base):
    break_row(base / "release_v0" / "meta" / "meta.csv", 4, "basal cell carcinoma", "freckle")


def broken_ph2_code(base):
    break_row(base / "PH2Dataset" / "PH2_dataset.txt", 3, "                 0 ||", "7 ||")


def broken_ph2_columns(base):
    break_row(base / "PH2Dataset" / "PH2_dataset.txt", 1, "Clinical Diagnosis", "Diagnosis")


def broken_ph2_image(base):
    shutil.rmtree(base / "PH2Dataset" / "PH2 Dataset images" / "IMD005")


def broken_mednode_folder(base):
    shutil.rmtree(base / "complete_mednode_dataset" / "naevus")


def broken_imagenette_folder(base):
    (base / "imagenette2" / "val" / "n01440764").rename(base / "imagenette2" / "val" / "fish")


BROKEN = {
    "isic2016 first label": (
        "isic2016", broken_isic2016_first_label,
        "ISBI2016_ISIC_Part3_Training_GroundTruth.csv, row 1: label 'harmless'; expected benign or malignant, or 0 or 1.",
    ),
    "isic2016 label": (
        "isic2016", broken_isic2016_label,
        "ISBI2016_ISIC_Part3_Training_GroundTruth.csv, row 3: label 'harmless'; expected benign or malignant, or 0 or 1.",
    ),
    "isic2016 image": (
        "isic2016", broken_isic2016_image,
        "ISBI2016_ISIC_Part3_Test_GroundTruth.csv, row 3: there is no image 'ISIC_0001002' in {base}/ISBI2016_ISIC_Part3_Test_Data.",
    ),
    "isic2016 cells": (
        "isic2016", broken_isic2016_cells,
        "ISBI2016_ISIC_Part3_Training_GroundTruth.csv, row 4: expected 2 cells, got 3.",
    ),
    "isic2017 columns": (
        "isic2017", broken_isic2017_columns,
        "ISIC-2017_Validation_Part3_GroundTruth.csv, row 1: expected the columns image_id, melanoma, seborrheic_keratosis, got image_id, mel, seborrheic_keratosis; melanoma is missing.",
    ),
    "isic2017 value": (
        "isic2017", broken_isic2017_value,
        "ISIC-2017_Training_Part3_GroundTruth.csv, row 2: melanoma is '0.5'; expected 0 or 1.",
    ),
    "isic2017 both": (
        "isic2017", broken_isic2017_both,
        "ISIC-2017_Training_Part3_GroundTruth.csv, row 2: 2 of melanoma, seborrheic_keratosis are 1; expected at most one.",
    ),
    "isic2018 none": (
        "isic2018", broken_isic2018_none,
        "ISIC2018_Task3_Validation_GroundTruth.csv, row 2: 0 of nv, mel, bcc, bkl, akiec, df, vasc are 1; expected exactly one.",
    ),
    "isic2018 no labels": (
        "isic2018", broken_isic2018_no_labels,
        "{base} holds no ISIC2018_Task3_Validation_GroundTruth.csv. Unpack ISIC2018_Task3_Validation_GroundTruth.zip there.",
    ),
    "archive columns": (
        "uda", broken_archive_columns,
        "metadata.csv, row 1: expected a column diagnosis, or diagnosis_1 to diagnosis_5, got isic_id, benign_malignant, said.",
    ),
    "archive id": (
        "uda", broken_archive_id,
        "metadata.csv, row 1: expected a column with the image's id (isic_id, image_id, image_name, name), got number, benign_malignant, diagnosis.",
    ),
    "dermofit folder": (
        "dermofit", broken_dermofit_folder, "{base}: expected a folder for each class; missing: PYO.",
    ),
    "derm7pt diagnosis": (
        "derm7pt_clinical", broken_derm7pt_diagnosis,
        "meta.csv, row 4: diagnosis 'freckle' is none of the 20 that derm7point has.",
    ),
    "ph2 code": (
        "ph2", broken_ph2_code, "PH2_dataset.txt, row 3: clinical diagnosis '7'; expected 0, 1 or 2.",
    ),
    "ph2 columns": (
        "ph2", broken_ph2_columns,
        "PH2_dataset.txt, row 1: expected the columns Name and Clinical Diagnosis, got Name, Histological Diagnosis, Diagnosis,",
    ),
    "ph2 image": (
        "ph2", broken_ph2_image,
        "PH2_dataset.txt, row 5: there is no image 'IMD005' in {base}/PH2Dataset/PH2 Dataset images.",
    ),
    "mednode folder": (
        "mednode", broken_mednode_folder,
        "{base}/complete_mednode_dataset: expected the folders naevus and melanoma; no naevus.",
    ),
    "imagenette folder": (
        "imagenette", broken_imagenette_folder,
        "missing or not known: fish, n01440764. Unpack imagenette2.tgz again.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "harm", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_broken_is_named_with_file_and_row(name, harm, message, tmp_path):
    spec = build(name, tmp_path)
    base = tmp_path / spec.home
    harm(base)
    with pytest.raises(data.DataError) as caught:
        data.load(spec, tmp_path)
    assert message.format(base=base) in str(caught.value)
    nothing_is_left(tmp_path)


def nothing_is_left(root):
    left = [path.name for path in (root / "prepared").glob("*") if not path.name.endswith(".lock")]
    assert left == []
    assert [*root.rglob("*.part")] == []


def test_ham10000_of_another_diagnosis(tmp_path):
    spec = miniatures.ham10000(tmp_path)
    table = tmp_path / "isic2018" / "HAM10000_metadata"
    table.write_text(table.read_text().replace(",bkl,", ",freckle,", 1))
    message = r"row \d+: diagnosis 'freckle'; expected one of nv, mel, bcc, bkl, akiec, df, vasc"
    with pytest.raises(data.DataError, match=message):
        data.load(spec, tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1   A000   XYZ", "row 2: '1   A000   XYZ'; expected a number, an image and one of the"),
        ("A000", "row 2: 'A000'; expected a number, an image and one of the codes AK, BCC"),
        ("1   Q999   AK", "row 2: there is no image 'Q999' in"),
    ],
)
def test_dermofits_list_names_its_rows(line, message, tmp_path):
    base = tmp_path / "dermofit"
    save(base / "A000.png", picture(0, 5, 0))
    (base / "lesionlist.txt").write_text(f"   1   A000   AK\n{line}\n")
    with pytest.raises(data.DataError, match="lesionlist.txt, " + message):
        data.load("dermofit", tmp_path)


def test_a_spreadsheet_without_a_mark_names_its_row(tmp_path):
    spec = miniatures.ph2_with_sheet(tmp_path, unmarked=4)
    with pytest.raises(data.DataError, match=r"PH2_dataset.xlsx, row 18: expected one X under Com"):
        data.load(spec, tmp_path)


@pytest.mark.parametrize("content", [b"no sheet", None], ids=["text", "entities"])
def test_a_spreadsheet_that_is_none(content, tmp_path):
    spec = miniatures.ph2_with_sheet(tmp_path)
    release = tmp_path / "ph2" / "PH2Dataset"
    if content is None:
        with zipfile.ZipFile(release / "PH2_dataset.xlsx", "w") as book:
            lol = '<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;">]><a>&c;</a>'
            book.writestr("xl/worksheets/sheet1.xml", lol)
    else:
        (release / "PH2_dataset.xlsx").write_bytes(content)
    with pytest.raises(data.DataError, match=r"PH2_dataset.xlsx is not a spreadsheet that can be"):
        data.load(spec, tmp_path)


def test_ph2_without_labels(tmp_path):
    spec = build("ph2", tmp_path)
    (tmp_path / "ph2" / "PH2Dataset" / "PH2_dataset.txt").unlink()
    with pytest.raises(data.DataError, match=r"holds neither PH2_dataset\.txt nor PH2"):
        data.load(spec, tmp_path)


def test_stl10_labels_outside_of_the_classes(tmp_path):
    spec = build("stl10", tmp_path)
    file = tmp_path / "stl10" / "stl10_binary" / "train_y.bin"
    labels = bytearray(file.read_bytes())
    labels[3] = 11
    file.write_bytes(labels)
    changed = {**spec.checksums, "stl10_binary/train_y.bin": miniatures.md5_of(file)}
    with pytest.raises(data.DataError, match=r"train_y.bin, row 3: label 11; expected 1 to 10."):
        data.load(replace(spec, checksums=changed), tmp_path)


def test_stl10_images_that_are_cut_off(tmp_path):
    spec = build("stl10", tmp_path)
    file = tmp_path / "stl10" / "stl10_binary" / "test_X.bin"
    file.write_bytes(file.read_bytes()[:-5])
    changed = {**spec.checksums, "stl10_binary/test_X.bin": miniatures.md5_of(file)}
    with pytest.raises(data.DataError, match=r"expected 11 images of 27,648 bytes."):
        data.load(replace(spec, checksums=changed), tmp_path)


def test_cifar_with_other_classes(tmp_path):
    spec = build("cifar10", tmp_path)
    file = tmp_path / "cifar10" / "cifar-10-batches-py" / "batches.meta"
    file.write_bytes(pickle.dumps({"label_names": list("abcdefghij")}, protocol=2))
    changed = {**spec.checksums, "cifar-10-batches-py/batches.meta": miniatures.md5_of(file)}
    with pytest.raises(data.DataError, match="names other classes than CIFAR-10 has"):
        data.load(replace(spec, checksums=changed), tmp_path)


def test_a_pickle_with_another_checksum_is_never_opened(tmp_path):
    spec = build("cifar10", tmp_path)
    file = tmp_path / "cifar10" / "cifar-10-batches-py" / "data_batch_3"
    touched = tmp_path / "touched"

    class Attack:
        def __reduce__(self):
            return touched.write_text, ("gotcha",)

    file.write_bytes(pickle.dumps(Attack()))
    with pytest.raises(data.DataError, match=r"data_batch_3 has the md5 \w+, expected \w+: it is"):
        data.load(spec, tmp_path)
    assert not touched.exists()


def test_an_incomplete_dataset_does_not_pass(tmp_path):
    spec = build("imagenette", tmp_path)
    next((tmp_path / "imagenette" / "imagenette2" / "train" / "n03888257").iterdir()).unlink()
    with pytest.raises(data.DataError) as caught:
        data.load(spec, tmp_path)
    assert "Imagenette: expected 21 train, 10 test, found 20 train, 10 test" in str(caught.value)
    assert "get them again, or give their path" in str(caught.value)


def test_one_file_of_medmnist_for_another_is_recognised(tmp_path):
    with installed("organmnist_axial", "organamnist", data_dir=tmp_path):
        old = tmp_path / "organmnist_axial" / "organmnist_axial.npz"
        # as MedMNIST 2.0 to 2.2.3 served it
        with np.load(old) as arrays:
            np.savez(old, **arrays)
        spec = CATALOGUE["organmnist_axial"]
        archive = replace(spec.archives[0], md5=miniatures.md5_of(old))
        CATALOGUE["organmnist_axial"] = replace(spec, archives=(archive,))
        shutil.copy(old, tmp_path / "organamnist" / "organamnist.npz")
        with pytest.raises(data.DataError) as caught:
            data.load("organamnist")
    assert "organamnist.npz is the file of organmnist_axial" in str(caught.value)
    assert "Name it organmnist_axial.npz to use it as that." in str(caught.value)
