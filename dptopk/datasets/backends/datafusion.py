"""Apache DataFusion, in this process: Ibis tables of its connections."""

from __future__ import annotations

from typing import Any

from dptopk.datasets.backends.base import Backend, builtin


def _digest(text: Any) -> Any:
    hashed = builtin("sha256", ("string",), "binary")(text)
    return builtin("encode", ("binary", "string"), "string")(hashed, "hex")


# Text is compared by its bytes always, and there is no 64-bit hash of several values: lots are by SHA-256.
DATAFUSION = Backend(name="datafusion", digest=_digest)
