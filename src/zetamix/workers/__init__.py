"""Independent jobs side by side: in processes of this machine, or on a Ray cluster."""

from zetamix.workers.boards import Board as Board
from zetamix.workers.boards import Contact as Contact
from zetamix.workers.boards import FileBoard as FileBoard
from zetamix.workers.open import check_backend as check_backend
from zetamix.workers.open import open_workers as open_workers
from zetamix.workers.pool import Workers as Workers
from zetamix.workers.pool import WorkersError as WorkersError
from zetamix.workers.pool import cores as cores
