"""JSON as text: one form for what is hashed, stored or compared, and one for what people read."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    r"""Return the JSON that is hashed, stored and compared: ASCII, keys sorted.

    Args:
        value: as ``json`` takes it, with texts as keys: integers are sorted as numbers, and as
            texts once the JSON was read back.

    Raises:
        ValueError: for a number that is not finite.
        TypeError: for what has no form in JSON.

    >>> canonical_json({"b": 1, "a": ["é", None]})
    '{"a": ["\\u00e9", null], "b": 1}'
    """
    return json.dumps(value, sort_keys=True, allow_nan=False)


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of the canonical form, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def readable_json(value: Any) -> str:
    """Return JSON for files and terminals: indented, in the order given, with what is not printable
    escaped, and a newline at the end.

    Infinity and NaN are written as Python's ``json`` reads them; strict JSON has no word for them.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    lines = [_printable(line) for line in text.split("\n")]
    return "\n".join([*lines, ""])


def _printable(text: str) -> str:
    """Return the text with what is not printable escaped."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
