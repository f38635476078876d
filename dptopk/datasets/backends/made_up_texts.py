"""Operations that an engine lacks for some texts, found without a row.

PostgreSQL has no pattern search under a collation in which different texts are equal, and compares
no texts of two collations. It says so only when a row holds a text: whether there is an answer
would hang on one row. So each operation of a caller is tried on made-up texts of the same
collations first.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import OpenTable, hide_data_of_errors

if TYPE_CHECKING:
    import ibis.expr.operations as ops
    import ibis.expr.types as ir

_TEXT = "a"


def refuse_untaken_texts(argument: str, expression: ir.Expr, source: OpenTable) -> None:
    """Refuse an expression with an operation that the engine lacks for texts such as those that it
    is given; no row is read.

    Args:
        argument: the argument whose expression it is, for messages.
        expression: an Ibis table or column.
        source: the table, of an engine that refuses such an operation only when it meets a text.

    Raises:
        InvalidParameter: with the name of the operation.
    """
    import ibis.expr.operations as ops

    if not source.backend.refuses_late:
        return
    trials: dict[ops.Relation, dict[ops.Value, ir.Value]] = defaultdict(dict)
    for operation in expression.op().find(ops.Value):
        # A cast depends on no collation, and may not take the text that is made up.
        is_cast = isinstance(operation, ops.Cast | ops.TryCast)
        relations = list(operation.relations)
        if not is_cast and len(relations) == 1 and any(map(_is_text, _flat(operation.args))):
            (relation,) = relations
            trials[relation][operation] = _on_made_up_texts(operation, relation)
    for relation, expressions in trials.items():
        no_rows = _without_rows(relation)
        for operation, trial in expressions.items():
            hide_data_of_errors(
                argument,
                f"{source.backend.name} has no {type(operation).__name__} for texts of this "
                f"collation",
                partial(source.run, no_rows.agg(trial=trial.isnull())),
            )


def _without_rows(relation: ops.Relation) -> ir.Table:
    """Return the rows of a relation that meet no condition."""
    import ibis

    return relation.to_expr().filter(ibis.literal(False))


def _flat(arguments: object) -> list[object]:
    """Return the arguments of an operation, also those within tuples, one by one."""
    if not isinstance(arguments, tuple):
        return [arguments]
    return [each for argument in arguments for each in _flat(argument)]


def _is_text(argument: object) -> bool:
    """Return whether an argument is a text that rows decide, and no constant."""
    import ibis.expr.operations as ops

    if not isinstance(argument, ops.Value) or isinstance(argument, ops.Literal):
        return False
    return bool(argument.dtype.is_string())


def _on_made_up_texts(operation: ops.Value, relation: ops.Relation) -> ir.Value:
    """Return an operation on the rows of a relation as one on made-up texts of the same collations.

    The largest of no rows is NULL, and has the collation of the column: a text in its place has it
    too. Constants stay as they are, and other arguments are NULL.
    """
    import ibis
    import ibis.expr.operations as ops

    no_rows = _without_rows(relation).op()

    def made_up(argument: object) -> object:
        """Return what stands for an argument."""
        if isinstance(argument, tuple):
            return tuple(map(made_up, argument))
        if not isinstance(argument, ops.Value) or isinstance(argument, ops.Literal):
            return argument
        if not argument.dtype.is_string():
            return ibis.null(argument.dtype).op()
        texts = argument.replace({relation: no_rows}).to_expr()
        return ibis.coalesce(texts.max(), _TEXT).op()

    arguments = zip(operation.argnames, operation.args, strict=True)
    return operation.copy(**{name: made_up(argument) for name, argument in arguments}).to_expr()
