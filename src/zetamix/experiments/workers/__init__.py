"""Independent jobs side by side: in processes of this machine, or on a Ray cluster."""

from zetamix.experiments.boards import Board as Board
from zetamix.experiments.boards import Contact as Contact
from zetamix.experiments.boards import FileBoard as FileBoard
from zetamix.experiments.executor import Workers as Workers
from zetamix.experiments.executor import WorkersError as WorkersError
from zetamix.experiments.executor import cores as cores
from zetamix.experiments.open_workers import check_backend as check_backend
from zetamix.experiments.open_workers import open_workers as open_workers
