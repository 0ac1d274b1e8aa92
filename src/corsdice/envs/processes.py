"""Processes beside this one, which end with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from threading import Thread

from corsdice.errors import UserError


@contextmanager
def simulators(workers: int, env: str) -> Iterator[Executor]:
    """Processes that run a simulator."""
    try:
        with processes(workers) as pool:
            yield pool
    except BrokenProcessPool as error:
        raise UserError(f"a process that ran {env} died: --workers 1 shows why") from error


@contextmanager
def processes(workers: int) -> Iterator[Executor]:
    """Processes that end when this block does, whatever ends it.

    Each holds one end of a pipe whose other end is here alone. An error, Ctrl-C and the death of this process all cut
    it, and then the workers end too, in the middle of a step if need be.
    """
    context = get_context("spawn")  # a fork would copy the locks of JAX's threads
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, _attend, (theirs,))
    try:
        for _ in range(workers):
            pool.submit(os.getpid)  # starts one: the death of a process that the last job starts may go unnoticed
        yield pool
        pool.shutdown()
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        theirs.close()


def _attend(line: Connection) -> None:
    """In a worker: ends it when the line is cut. Ctrl-C is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end() -> None:
        wait([line])
        os._exit(1)

    Thread(target=end, daemon=True).start()
