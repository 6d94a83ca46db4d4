"""The datasets of the paper by name: what is known of each, how to get it, how to load it.

`load(name, data_dir)` returns a `zetamix_lab.data.Dataset`, as `zetamix_lab.data.load` does for a
path. `prepare` downloads where that is allowed, `status` says what is on this machine, `locate` and
`not_found_message` where the files are and how to get those that are missing.
"""

from zetamix_lab.data.catalogue import CATALOGUE as CATALOGUE
from zetamix_lab.data.catalogue import DatasetSpec as DatasetSpec
from zetamix_lab.data.download import locate as locate
from zetamix_lab.data.download import not_found_message as not_found_message
from zetamix_lab.data.load_dataset import check as check
from zetamix_lab.data.load_dataset import load as load
from zetamix_lab.data.load_dataset import prepare as prepare
from zetamix_lab.data.load_dataset import status as status
from zetamix_lab.data.load_dataset import with_reported_split as with_reported_split
from zetamix_lab.data.manifolds import MANIFOLDS as MANIFOLDS
