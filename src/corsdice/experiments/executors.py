"""Where the cells of a table are computed: in this process, in others beside it, or on the machines of a Ray cluster.

A cell leaves its numbers on disk, and what it has learned so far in checkpoints. So one whose process was killed is
begun again and goes on from there, and the numbers do not depend on where they were computed.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from types import ModuleType
from typing import Any, Protocol, TypeVar

from corsdice.envs.processes import processes
from corsdice.errors import UserError
from corsdice.experiments.where import Where

ATTEMPTS = 3
"""Of a cell whose process dies."""


class Cell(Protocol):
    @property
    def logs(self) -> str:
        """Names the logs that it needs; cells that share them follow each other."""


C = TypeVar("C", bound=Cell)
Load = Callable[[C], Any]
Work = Callable[[C, Any], None]
"""A cell and what `Load` gives for it. Both are functions of a module, so that they can be named elsewhere."""


def execute(where: Where, cells: Sequence[C], load: Load[C], work: Work[C]) -> Iterator[C]:
    """Does all cells, and yields each when it is done."""
    match where.executor:
        case "here":
            return _here(cells, load, work)
        case "processes":
            return _in_processes(where.processes, cells, load, work)
        case "ray":
            return _on_ray(where.address, cells, load, work)


def _here(cells: Sequence[C], load: Load[C], work: Work[C]) -> Iterator[C]:
    for cell in cells:
        work(cell, load(cell))
        yield cell


def _in_processes(count: int, cells: Sequence[C], load: Load[C], work: Work[C]) -> Iterator[C]:
    waiting, attempts = list(cells), ATTEMPTS
    while waiting:
        try:
            with processes(min(count, len(waiting))) as pool:
                under_way = {pool.submit(_load_and_work, load, work, cell): cell for cell in waiting}
                for done in as_completed(under_way):
                    done.result()
                    waiting.remove(under_way[done])
                    attempts = ATTEMPTS
                    yield under_way[done]
        except BrokenProcessPool:
            attempts -= 1
            if not attempts:
                raise UserError(
                    f"a process died {ATTEMPTS} times, for want of memory perhaps: fewer --processes need less, and "
                    "--executor here shows why"
                ) from None


def _load_and_work(load: Load[C], work: Work[C], cell: C) -> None:
    work(cell, load(cell))


def _on_ray(address: str | None, cells: Sequence[C], load: Load[C], work: Work[C]) -> Iterator[C]:
    """As many cells at a time as the cluster has cores; logs are put into its object store once."""
    ray = _import_ray()
    if address is not None:
        _check_reachable(address)
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        do = ray.remote(num_cpus=1, max_retries=ATTEMPTS)(work)
        most = max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = list(cells)
        under_way: dict[Any, C] = {}
        name, logs = "", None
        while waiting or under_way:
            while waiting and len(under_way) < most:
                cell = waiting.pop(0)
                if cell.logs != name:
                    name, logs = cell.logs, ray.put(load(cell))  # the store keeps the last ones while a cell needs them
                under_way[do.remote(cell, logs)] = cell
            (done,), _ = ray.wait(list(under_way))
            cell = under_way.pop(done)
            ray.get(done)
            yield cell
    except ray.exceptions.WorkerCrashedError as error:
        raise UserError(f"a process died {ATTEMPTS + 1} times on one cell: --executor here shows why") from error
    finally:
        ray.shutdown()


def _import_ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UserError("--executor ray needs Ray: pip install 'corsdice[ray]'") from None
    return ray


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.removeprefix("ray://"), int(port)), timeout=10).close()
        except OSError as error:
            raise UserError(f"no Ray cluster at {address}: start one with `ray start --head`") from error
