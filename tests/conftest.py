import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings

CACHE = "JAX_COMPILATION_CACHE_DIR"
MAPS, MOST_MAPS = Path("/proc/self/maps"), 20_000

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")


def pytest_configure(config):
    """What one test has compiled, another need not: a cache for this session alone, shared with worker processes."""
    if not hasattr(config, "workerinput"):
        os.environ[CACHE] = tempfile.mkdtemp(prefix="corsdice-tests-")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(CACHE), ignore_errors=True)


def pytest_runtest_teardown(item, nextitem):
    """Compiled programs hold memory maps; Linux gives a process 65,530, and beyond them JAX crashes."""
    at_an_end = nextitem is None or nextitem.path != item.path
    if at_an_end and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        import jax  # not before the cache is set up

        jax.clear_caches()
