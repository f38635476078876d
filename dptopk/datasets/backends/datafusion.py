"""Apache DataFusion, in this process: Ibis tables of its connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import Backend, builtin
from dptopk.datasets.backends.total import (
    cast_of_numbers,
    null_by_zero,
    replacement_in,
    rounding_below_limit,
)

if TYPE_CHECKING:
    import ibis.expr.operations as ops
    import ibis.expr.types as ir


def _digest(text: ir.StringValue) -> ir.StringValue:
    """Return the SHA-256 of a text in UTF-8 as hexadecimal digits."""
    hashed = builtin("sha256", ("string",), "binary")(text)
    return builtin("encode", ("binary", "string"), "string")(hashed, "hex")


# An operation that may fail -> what is written instead of it (``replacement_in``).
_TOTAL: dict[str, Callable[..., ir.Value | None]] = {
    "Cast": cast_of_numbers,
    "TryCast": cast_of_numbers,
    "Divide": null_by_zero,
    "Modulus": null_by_zero,
    "Floor": rounding_below_limit,
    "Ceil": rounding_below_limit,
    "Round": rounding_below_limit,
}


def _total(operation: ops.Value) -> ir.Value | None:
    """Return an equal operation that gives NULL where this one would fail; None if none is known,
    so that the operation is refused.
    """
    return replacement_in(_TOTAL, operation)


# Text is compared by its bytes always, and there is no 64-bit hash of several values: lots are by
# SHA-256.
DATAFUSION = Backend(name="datafusion", digest=_digest, decimals=38, total=_total)
