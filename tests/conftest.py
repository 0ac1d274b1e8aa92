import os
import shutil
import tempfile

from hypothesis import settings

CACHE = "JAX_COMPILATION_CACHE_DIR"

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
