"""What a worker process of `executor` does: jobs from its pipe, until the pipe is closed."""

import pickle
import queue
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from zetamix_lab.runs.executor import DONE, ERROR, STOP

MESSAGE = "message"


def work(handle: int) -> None:
    """Do the jobs that arrive on a file descriptor.

    A worker stops as the command does: on request, at SIGTERM or SIGHUP, which may be sent to all
    processes of a group, and when its parent was killed, which closes the pipe. Then it saves its
    runs and ends.
    """
    stop, jobs = threading.Event(), queue.SimpleQueue[Any]()

    def end(*_: object) -> None:
        stop.set()
        jobs.put(None)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    pipe = Connection(handle)
    content = pipe.recv_bytes()

    def read() -> None:
        try:
            while (message := pipe.recv()) != STOP:
                jobs.put(message)
        except (EOFError, OSError):
            pass
        end()

    def send(kind: str, value: Any) -> None:
        # nobody listens if the parent was killed; the run is saved all the same
        try:
            pipe.send((kind, value))
        except (BrokenPipeError, ConnectionError):
            stop.set()

    threading.Thread(target=read, name="zetamix-jobs", daemon=True).start()
    try:
        function, shared = pickle.loads(content)
        while (found := jobs.get()) is not None:
            function(found[0], shared, lambda message: send(MESSAGE, message), stop.is_set)
            if stop.is_set():
                # without DONE: the job may not be complete
                return
            send(DONE, None)
    except BaseException as error:
        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        try:
            send(ERROR, error)
        except (TypeError, AttributeError, pickle.PicklingError):
            send(ERROR, RuntimeError(f"{type(error).__name__}: {error}"))
