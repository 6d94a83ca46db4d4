"""Independent jobs side by side: in processes of this machine, or on a Ray cluster."""

from zetamix.experiments.boards import Board as Board
from zetamix.experiments.boards import Contact as Contact
from zetamix.experiments.boards import FileBoard as FileBoard
from zetamix.experiments.workers.opening import check_backend as check_backend
from zetamix.experiments.workers.opening import open_workers as open_workers
from zetamix.experiments.workers.pool import Workers as Workers
from zetamix.experiments.workers.pool import WorkersError as WorkersError
from zetamix.experiments.workers.pool import cores as cores
