"""Datasets: a user's own by path, and a few by name."""

try:
    from zetamix_lab.data.dataset import Dataset as Dataset
    from zetamix_lab.data.dataset import Split as Split
    from zetamix_lab.data.dataset import from_tensors as from_tensors
    from zetamix_lab.data.errors import DataError as DataError
    from zetamix_lab.data.errors import DatasetNotFoundError as DatasetNotFoundError
    from zetamix_lab.data.image_files import read_image as read_image
    from zetamix_lab.data.load_dataset import DatasetRef as DatasetRef
    from zetamix_lab.data.load_dataset import check as check
    from zetamix_lab.data.load_dataset import load as load
    from zetamix_lab.data.load_dataset import load_cached as load_cached
    from zetamix_lab.data.source import Report as Report
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"zetamix_lab.data needs {error.name}. Install it with: pip install 'zetamix[lab]'",
        name=error.name,
    ) from error
