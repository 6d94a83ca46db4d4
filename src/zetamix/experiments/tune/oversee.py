"""A thread that looks after workers while the main one waits for them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from zetamix.experiments.boards import EVERY, STOP
from zetamix.experiments.workers import Workers

Stop: TypeAlias = Callable[[], bool]


@contextmanager
def overseeing(workers: Workers, stop: Stop, look: Callable[[], None]) -> Iterator[Stop]:
    """Call `look` twice a second, and have workers save and leave once `stop` says so.

    Gives the question to ask before more work is handed out. What goes wrong in `look` stops the
    workers too, and is raised when they have left.
    """
    over = threading.Event()
    trouble: list[BaseException] = []

    def stopped() -> bool:
        return bool(trouble) or stop()

    def oversee() -> None:
        while not over.wait(EVERY):
            try:
                if not stopped():
                    look()
            except BaseException as error:
                trouble.append(error)
            if stopped():
                workers.board.put(STOP, {"at": time.time()})

    thread = threading.Thread(target=oversee, name="zetamix-tune", daemon=True)
    thread.start()
    try:
        yield stopped
    finally:
        over.set()
        thread.join()
    if trouble:
        raise trouble[0]
