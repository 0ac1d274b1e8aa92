"""The command line: `corsdice --help`."""

from corsdice.cli.main import main

__all__ = ["main"]
