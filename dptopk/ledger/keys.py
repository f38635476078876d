"""The secret of a keyed chain, and the file that holds it."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from dptopk.errors import InvalidParameter

_LOG = logging.getLogger(__name__)


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

    A warning is logged if other users may read the file.

    Args:
        path: the file.
        name: the argument, for messages.

    Raises:
        InvalidParameter: naming the argument, when the file cannot be read or holds no secret.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read().strip()
    except OSError as error:
        raise InvalidParameter(f"{name}: cannot read {path.name!r}: {error.strerror}") from None
    if not secret:
        raise InvalidParameter(f"{name}: {path.name!r} is empty")
    if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH):
        _LOG.warning(
            "%s: other users may read %r, and could forge the chain: chmod 600", name, path.name
        )
    return secret
