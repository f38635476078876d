"""Accepts the Ibis expressions in which each row depends on one row of the events only; refuses all
others.

Through a limit, a window, a join or a group one user's rows decide which of the others' count, and
no bound holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.operations as ops
    import ibis.expr.types as ir

# Lists of what is allowed: an operation of another version of Ibis, or of the user's own, is
# refused.
TABLES = ("DatabaseTable", "InMemoryTable", "UnboundTable", "SelfReference")
RELATIONS = (*TABLES, "Project", "Filter", "Union", "DropColumns", "DropNull", "FillNull")
MODULES = ("generic", "logical", "numeric", "strings", "temporal", "json", "structs", "maps")


def refuse_across_rows(argument: str, expression: ir.Expr, *, hint: str = "") -> None:
    """Refuse an expression with an operation that may look at several rows, naming it.

    Args:
        argument: the argument whose expression it is, for the message.
        expression: an Ibis table or column.
        hint: the end of the message.

    Raises:
        InvalidParameter: when an operation is none of a projection, a cast or another function of
            the values of one row, a filter or a union.
    """
    refused = expression.op().find(lambda node: not _looks_at_one_row(node))
    if refused:
        # A function of the user's own has a name of its own.
        name = getattr(refused[0], "__func_name__", type(refused[0]).__name__)
        raise InvalidParameter(
            f"{argument} must look at one row at a time: projections, casts, filters on single "
            f"rows and unions do, {name} may not{hint}"
        )


def _looks_at_one_row(node: ops.Node) -> bool:
    """Return whether an operation looks at one row only."""
    import ibis.expr.operations as ops

    package, _, module = type(node).__module__.rpartition(".")
    if package != "ibis.expr.operations":
        return False
    if isinstance(node, ops.Relation):
        # A union of distinct rows compares each row with all others.
        return type(node).__name__ in RELATIONS and not getattr(node, "distinct", False)
    if isinstance(node, ops.Field | ops.Alias):  # their modules also hold what is refused
        return True
    several_rows = (
        ops.Reduction,
        ops.Analytic,
        ops.WindowFunction,
        ops.Subquery,
        ops.Impure,
        ops.RowID,
    )
    return isinstance(node, ops.Value) and module in MODULES and not isinstance(node, several_rows)
