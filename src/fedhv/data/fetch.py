"""The download of one file. It resumes earlier attempts, and is moved into place only if it is correct."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedhv.data.celeba import ProgressCallback
from fedhv.data.files import BLOCK, present
from fedhv.support.errors import FedHVError, InputError

ATTEMPTS = 4
"""The number of attempts after broken connections. Received bytes are kept."""
PAUSE = 1.0
"""Seconds before the second attempt; doubled for every later one."""
TIMEOUT = (15, 60)
"""Seconds to connect, and seconds without a byte."""


def fetch(
    url: str, target: Path, check: Callable[[Path], None], largest: int, progress: ProgressCallback | None
) -> None:
    """Download `url` to `target`.

    Args:
        url: The address.
        target: The file. Until it is complete and correct, its bytes are in a file that ends in ".part".
        check: Raises `FedHVError` unless the complete file is the right one.
        largest: The largest accepted number of bytes.
        progress: Called with the file, the bytes so far and the total.
    """
    part = target.with_name(f"{target.name}.part")
    resumed = _size(part) > 0
    _complete(url, part, largest, progress)
    try:
        check(part)
    except FedHVError as error:
        with suppress(OSError):
            part.unlink()
        if not resumed:
            raise FedHVError(f"Downloaded from {url}: {error} Nothing was kept; try again later.") from None
        # The file may have changed on the server since the first attempt: start again.
        return fetch(url, target, check, largest, progress)
    return os.replace(part, target)


def _complete(url: str, part: Path, largest: int, progress: ProgressCallback | None) -> None:
    """Download the missing bytes of `part`, with several connections if they break."""
    try:
        import requests
        from urllib3.exceptions import HTTPError
    except ImportError:
        raise InputError("Downloading needs requests; run `pip install 'fedhv[data]'`.") from None
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE * 2 ** (attempt - 1) if attempt else 0)
        try:
            if _continue(url, part, largest, progress):
                return
            error = "the connection ended early"
        except (requests.RequestException, HTTPError) as caught:
            error = f"the connection failed ({type(caught).__name__})"
    kept = _size(part)
    remedy = f"{kept} bytes are kept, run the command again to continue"
    if not kept:
        remedy = "check the connection and run the command again, or put the files there by hand"
    raise FedHVError(f"Cannot download {url}: {error}; {remedy}.")


def _continue(url: str, part: Path, largest: int, progress: ProgressCallback | None) -> bool:
    """Append the bytes of one connection. Returns whether the file is complete."""
    import requests

    have = _size(part)
    # With compressed transfer, byte positions would refer to the compressed stream.
    headers = {"Accept-Encoding": "identity", "User-Agent": "fedhv"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        status, found = response.status_code, response.headers.get("Content-Range", "")
        if status == 416:  # no bytes after ours: the file is complete, or ours is another file
            if found != f"bytes */{have}":
                part.unlink()
            return found == f"bytes */{have}"
        if status >= 500 or status == 429:
            response.raise_for_status()
        if status not in (200, 206):
            raise FedHVError(
                f"Cannot download {url}: the server answered {status} {response.reason}; "
                "check the connection, or put the files there by hand."
            )
        if status == 206 and not found.startswith(f"bytes {have}-"):
            raise FedHVError(f"Cannot continue {url}: the server sent another range; delete {part}.")
        have = have if status == 206 else 0  # some servers do not support ranges
        announced = response.headers.get("Content-Length", "")
        total = have + int(announced) if announced.isdecimal() else None
        return _append(response.raw, part, have, total, largest, progress, url)


def _append(
    raw: Any, part: Path, have: int, total: int | None, largest: int, progress: ProgressCallback | None, url: str
) -> bool:
    with part.open("ab" if have else "wb") as file:
        while max(have, total or 0) <= largest and (block := raw.read(BLOCK, decode_content=False)):
            have += len(block)
            file.write(block)
            if progress is not None:
                progress(part.stem, have, total)
    if max(have, total or 0) > largest:
        raise FedHVError(f"Cannot download {url}: expected at most {largest} bytes, found more.")
    return total is None or have >= total


def _size(path: Path) -> int:
    return path.stat().st_size if present(path) else 0
