"""The secret of a keyed chain, and the file that holds it."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from dptopk.errors import InvalidParameter

_LOG = logging.getLogger(__name__)
_MOST_BYTES = 2**20  # a longer file is no secret; a device may never end


def secret_of(key: str | bytes | None) -> bytes | None:
    """Return a secret as bytes; None for a chain without one.

    Raises:
        InvalidParameter: when it is empty.
    """
    secret = key.encode() if isinstance(key, str) else key
    if secret is not None and not secret:
        raise InvalidParameter("key must not be empty")
    return secret


def read_key(path: Path, name: str = "key_file") -> bytes:
    """Return the secret in a file, without white space around it.

    A warning is logged if other users may read the file. A pipe that somebody writes to is read to
    its end; one to which nobody does is empty.

    Args:
        path: the file.
        name: the argument, for messages.

    Raises:
        InvalidParameter: naming the argument, when the file cannot be read or holds no secret.
    """
    try:
        # Path.open takes no opener.
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidParameter(f"{name}: cannot read {path.name!r}: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise InvalidParameter(f"{name}: {path.name!r} is longer than a secret may be (1 MiB)")
    secret = content.strip()
    if not secret:
        raise InvalidParameter(f"{name}: {path.name!r} is empty")
    if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH):
        _LOG.warning(
            "%s: other users may read %r, and could forge the chain: chmod 600", name, path.name
        )
    return secret


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for somebody who writes to it, and return its descriptor; reading
    waits.

    Args:
        path: the path of the file.
        flags: how it is opened, as ``os.open`` takes it.

    Raises:
        OSError: when it cannot be opened.
    """
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if os.name == "posix":
        os.set_blocking(descriptor, True)
    return descriptor
