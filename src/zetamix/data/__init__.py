"""Datasets: those of the paper by name, or a user's own by path."""

try:
    from zetamix.data.catalogue import CATALOGUE as CATALOGUE
    from zetamix.data.catalogue import DatasetSpec as DatasetSpec
    from zetamix.data.dataset import Dataset as Dataset
    from zetamix.data.dataset import Split as Split
    from zetamix.data.dataset import from_tensors as from_tensors
    from zetamix.data.errors import DataError as DataError
    from zetamix.data.errors import DatasetNotFoundError as DatasetNotFoundError
    from zetamix.data.image_files import read_image as read_image
    from zetamix.data.load_dataset import DatasetRef as DatasetRef
    from zetamix.data.load_dataset import check as check
    from zetamix.data.load_dataset import check_fingerprint as check_fingerprint
    from zetamix.data.load_dataset import load as load
    from zetamix.data.load_dataset import load_cached as load_cached
    from zetamix.data.load_dataset import prepare as prepare
    from zetamix.data.load_dataset import with_reported_split as with_reported_split
    from zetamix.data.loader import Loader as Loader
    from zetamix.data.quality import Report as Report
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"zetamix.data needs {error.name}. Install it with: pip install 'zetamix[cli]'",
        name=error.name,
    ) from error
