"""A file over HTTP that goes on from where it was stopped, if it is still the same file.

NAME.part       what has arrived
NAME.part.json  from where, and of which version; without it, or if either has changed, all is fetched anew
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from corsdice import __version__
from corsdice.errors import UserError, one_line
from corsdice.files import write_json

LARGEST = 20 * 10**9
"""Bytes that are fetched at most, whatever a server sends."""
CHUNK = 2**20
Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and the bytes in all, None if the server does not say."""


class FetchError(Exception):
    """The network or the server failed; the message is one line."""


class _Broken(Exception):
    """A failure that may pass: worth another attempt."""


class _Changed(_Broken):
    """What is here is no part of what the server has."""


@dataclass(frozen=True)
class _Version:
    """Of a file on a server: two parts are of one file only if these agree."""

    url: str
    validator: str | None
    size: int | None


def fetch(url: str, part: Path, *, timeout: float, retries: int, pause: float, progress: Progress) -> None:
    """Attempts until the part is whole.

    A server that fails, or is silent for `timeout` seconds, is asked again after `pause` seconds, then twice as many, …
    """
    reason = ""
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        try:
            return _attempt(url, part, timeout, progress)
        except _Broken as error:
            reason = one_line(error)
            if isinstance(error, _Changed):
                discard(part)
    kept = f"; run again to go on from {part.stat().st_size / 1e6:.1f} MB" if _known(part, url) else ""
    raise FetchError(f"cannot fetch {url}: {reason}, in the last of {retries + 1} attempts{kept}")


def discard(part: Path) -> None:
    """The note goes first, so that it never describes another part."""
    _note_of(part).unlink(missing_ok=True)
    part.unlink(missing_ok=True)


def _attempt(url: str, part: Path, timeout: float, progress: Progress) -> None:
    """One request, for what is missing, and what comes of it."""
    known = _known(part, url)
    here = part.stat().st_size if known else 0
    if known and here == known.size:
        return
    headers = {"User-Agent": f"corsdice/{__version__}"}
    if known and known.validator:
        headers |= {"Range": f"bytes={here}-", "If-Range": known.validator}
    with _network(url):
        response = _opener().open(request.Request(url, headers=headers), timeout=timeout)
    with response:
        if response.status == 206:
            if not known or not _continues(response, known, here):
                raise _Changed("the file on the server has changed")
            version = known
        else:
            version, here = _Version(url, _validator(response), response.length), 0
        _refuse_excess(version, here, part)
        if not here:
            discard(part)
            if version.validator and version.size:
                write_json(_note_of(part), asdict(version))
        _receive(response, version, part, here, progress)


def _receive(response: Any, version: _Version, part: Path, here: int, progress: Progress) -> None:
    """Appends the answer to the part, and no more of it than was announced."""
    end = LARGEST if version.size is None else version.size
    progress(here, version.size)
    with part.open("ab") as file:
        while here < end:
            with _network(version.url):
                chunk = response.read1(min(CHUNK, end - here))
            if not chunk:
                break
            file.write(chunk)
            here += len(chunk)
            progress(here, version.size)
        file.flush()
        os.fsync(file.fileno())
    if version.size is not None and here < version.size:
        raise _Broken(f"the server ended after {here:,} of {version.size:,} bytes")


def _opener() -> request.OpenerDirector:
    """HTTP and HTTPS alone: `urlopen` would follow a redirect to FTP."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPRedirectHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
        request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


@contextmanager
def _network(url: str) -> Iterator[None]:
    """Failures of the network: `_Broken` where another attempt may help, FetchError where it cannot."""
    try:
        yield
    except HTTPError as error:
        error.close()
        answer = f"the server answers {error.code} {error.reason}"
        if error.code == 416:
            raise _Changed(answer) from error
        if error.code in (408, 429) or error.code >= 500:
            raise _Broken(answer) from error
        raise FetchError(f"cannot fetch {url}: {one_line(answer)}") from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, socket.gaierror):
            raise _Broken(f"there is no network, or no server {urlsplit(url).hostname}") from error
        if isinstance(reason, str):
            raise FetchError(f"cannot fetch {url}: {one_line(reason)}") from error
        raise _Broken(getattr(reason, "strerror", None) or str(reason)) from error


def _validator(response: Any) -> str | None:
    """What changes when the file does. A weak ETag may not, so HTTP lets no range rest on it."""
    tag: str = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified")


def _continues(response: Any, known: _Version, here: int) -> bool:
    """Whether a partial answer is the rest of what is here; not every server understands If-Range."""
    place = response.headers.get("Content-Range", "")
    same = _validator(response) in (None, known.validator)
    return same and re.fullmatch(rf"bytes {here}-\d+/{known.size}", place) is not None


def _refuse_excess(version: _Version, here: int, part: Path) -> None:
    if version.size is None:
        return
    if version.size > LARGEST:
        raise FetchError(f"{version.url} claims {version.size:,} bytes, more than any dataset has")
    missing, free = version.size - here, shutil.disk_usage(part.parent).free
    if missing > free:
        raise UserError(
            f"{part.parent} has {free / 1e6:,.0f} MB free and needs {missing / 1e6:,.0f} MB more for {part.stem}: "
            "make room, or choose another --directory"
        )


def _known(part: Path, url: str) -> _Version | None:
    """What the part is a part of, if the rest may be asked for."""
    try:
        version = _Version(**json.loads(_note_of(part).read_text()))
        return version if version.url == url and part.stat().st_size <= (version.size or 0) else None
    except (OSError, ValueError, TypeError):
        return None


def _note_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")
