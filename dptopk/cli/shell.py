"""How the command line speaks: errors as one line in the words of its options, help without noise."""

from __future__ import annotations

import logging
import sys
from typing import Any

import typer

from dptopk._internal.formatting import visible
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError

# Options that are not named as the argument of the library is.
OPTION_OF = {
    "l0": "labels-per-user",
    "linf": "per-label-cap",
    "label": "label-col",
    "count": "count-col",
    "user": "user-col",
    "item": "item-col",
}

# The extra that brings a module.
EXTRAS = {
    "pyarrow": "data",
    "ibis": "data",
    "duckdb": "data",
    "polars": "data",
    "pyspark": "spark",
    "psycopg": "postgres",
    "matplotlib": "plots",
    "fastapi": "serve",
    "uvicorn": "serve",
    "starlette": "serve",
    "pydantic": "serve",
}


def fail(message: str, code: int = 2) -> typer.Exit:
    """Say what is wrong on standard error; raise what this returns."""
    typer.secho(f"Error: {visible(message)}", fg=typer.colors.RED, err=True)
    return typer.Exit(code)


# Exit codes that a script may tell apart; all other input that is refused exits with 2.
EXIT_CODES: dict[type[DptopkError], int] = {BudgetExceeded: 3, LedgerError: 4}


class _PlainFlags:
    """Help without noise: a flag takes no value, so that none is named."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, flags with an empty metavar."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class Group(_PlainFlags, typer.core.TyperGroup):
    """Turns errors into one line on standard error and an exit code: no traceback, no data."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DptopkError as error:
            raise fail(str(error), EXIT_CODES.get(type(error), 2)) from None
        except ImportError as error:
            extra = EXTRAS.get((error.name or "").split(".")[0])
            hint = f"this needs {error.name}: pip install 'dptopk[{extra}]'" if extra else str(error)
            raise fail(hint) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            raise fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 1) from None


class Subgroup(_PlainFlags, typer.core.TyperGroup):
    """A group within the group: its help is shown like the others'."""


class Command(_PlainFlags, typer.core.TyperCommand):
    """A command whose flags are shown without a type, and whose errors name the option that is meant."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except InvalidParameter as error:
            named = str(error.parameter)
            option = "--" + OPTION_OF.get(named, named).replace("_", "-")
            if any(option in param.opts for param in self.params):
                raise InvalidParameter(f"{option}: {error}") from None
            raise


def log_to_stderr() -> None:
    """What the package does, step by step, on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("dptopk")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
