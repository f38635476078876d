"""How the command line speaks: errors as one line in the words of its options, help without noise."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

import typer

from dptopk._display import visible
from dptopk.errors import BudgetExceeded, DptopkError, LedgerError

__all__ = ["Command", "Group", "Subgroup", "fail", "in_options", "log_to_stderr"]

# What the library calls an argument, and what the user of the command line typed; longer names first.
OPTIONS = (
    (r"Sensitivity\(linf=(\d+), l0=(\d+), neighbours='add_remove'\)", r"--per-label-cap \1 --labels-per-user \2"),
    (r"Sensitivity\(linf=(\d+), l0=None, neighbours='add_remove'\)", r"--per-label-cap \1 and no --labels-per-user"),
    (r"\b(counts|method|interaction)='(\w+)'", r"--\1 \2"),
    (r"\bbudget\.(epsilon|delta)\b", r"--\1"),
    (r"\b(?:a finite )?l0 \(labels per user\)", "--labels-per-user"),
    (r"\bl0\b", "--labels-per-user"),
    (r"\blinf\b", "--per-label-cap"),
    (r"\bd_bar\b", "--d-bar"),
    (r"\blabels_per_user\b", "--labels-per-user"),
    (r"\bper_label_cap\b", "--per-label-cap"),
    (r"\bmemory_limit\b", "--memory-limit"),
    (r"\bmax_seconds\b", "--max-seconds"),
    (r"\bfailure_delta\b", "--failure-delta"),
    (r"^(label|count): ('.* has no column .*)", r"--\1-col: \2; if a row is an event, name --user-col and --item-col"),
    (r"^(label|count): '", r"--\1-col: '"),
    (r"^counts must (?=be (?:whole|finite|at least 0|below))", "--count-col: counts must "),
    (r"^(user|item): (?='|the table)", r"--\1-col: "),
    (r"^give exactly one of delta and epsilon", "give exactly one of --delta and --epsilon"),
    (r"^(k|epsilon|delta|seed|passes|accuracy) must", r"--\1 must"),
    (r"^(analyst|dataset|ledger|out|plot|format|domain|counts|method|encoding|where|fit|segments)(:| must)", r"--\1\2"),
)

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


def in_options(message: str) -> str:
    """A message of the library in the words of the command line.

    >>> in_options("l0 must be at least 1, got 0")
    '--labels-per-user must be at least 1, got 0'
    """
    for pattern, option in OPTIONS:
        message = re.sub(pattern, option, message)
    return message


def fail(message: str, code: int = 2) -> typer.Exit:
    """Say what is wrong on standard error; raise what this returns."""
    typer.secho(f"Error: {visible(message)}", fg=typer.colors.RED, err=True)
    return typer.Exit(code)


# Exit codes that a script may tell apart; all other input that is refused exits with 2.
EXIT_CODES: dict[type[DptopkError], int] = {BudgetExceeded: 3, LedgerError: 4}


class Group(typer.core.TyperGroup):
    """Turns errors into one line on standard error and an exit code: no traceback, no data."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DptopkError as error:
            raise fail(in_options(str(error)), EXIT_CODES.get(type(error), 2)) from None
        except ImportError as error:
            extra = EXTRAS.get((error.name or "").split(".")[0])
            hint = f"this needs {error.name}: pip install 'dptopk[{extra}]'" if extra else str(error)
            raise fail(hint) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            raise fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 1) from None

    def get_params(self, ctx: Any) -> list[Any]:
        """The options; a flag takes no value, so that none is named in the help."""
        return _plain_flags(super().get_params(ctx))


class Subgroup(typer.core.TyperGroup):
    """A group within the group: its help is shown like the others'."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options; a flag takes no value, so that none is named in the help."""
        return _plain_flags(super().get_params(ctx))


class Command(typer.core.TyperCommand):
    """A command whose flags are shown without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options; a flag takes no value, so that none is named in the help."""
        return _plain_flags(super().get_params(ctx))


def _plain_flags(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


def log_to_stderr() -> None:
    """What the package does, step by step, on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("dptopk")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
