"""This module says how the command line speaks: errors as one line in the words of its options,
help without noise.
"""

from __future__ import annotations

import logging
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from dptopk._internal.formatting import rounded_up, visible
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError

# Argument of the library -> the options of other names that may state it, as parameters of
# commands: the first one that the command has is meant.
OPTIONS_OF = {
    "l0": ("labels_per_user",),
    "linf": ("per_label_cap",),
    "segment": ("segment_by",),
    "engine": ("memory_limit",),
    "name": ("dataset",),
    "version": ("version", "data_version"),
    "domain": ("domain", "known_domain"),
}
# The options of a question that its help shows first; the others are "Advanced".
FIRST_SHOWN = {"k", "epsilon", "delta", "users", "labels_per_user", "user", "item", "label"}
FIRST_SHOWN |= {"count", "output_format", "help"}
# Arguments of the library that are a file, which has no option on the command line.
FILES = {"source", "table", "path", "plan", "partition"}
QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
# How a message begins that names the argument it is about, such as "delta must be in [0, 1)".
NAMED_ARGUMENT = re.compile(r"(?:budget\.)?(?P<argument>[a-z_][\w-]*)(?P<separator>: | must |=)")

# The extras of this package, and the modules that each of them brings.
MODULES_OF_EXTRA = {
    "data": ("pyarrow", "ibis", "duckdb", "polars"),
    "spark": ("pyspark",),
    "postgres": ("psycopg",),
    "plots": ("matplotlib",),
    "serve": ("fastapi", "uvicorn", "starlette", "pydantic"),
}


def message_in_options(error: InvalidParameter, options: dict[str, str]) -> str:
    """Return the message of an error with the option that is meant instead of the argument's name.

    Args:
        error: the error that the library raised.
        options: the options of the command, such as "--label-col", by the names of the parameters
            that they set.
    """
    message = str(error)
    beginning = NAMED_ARGUMENT.match(message)
    named_argument = beginning["argument"] if beginning else ""
    argument = error.parameter or named_argument
    option = _option_of(argument, options)
    if beginning is None or named_argument != argument:
        # The message does not begin with the argument: the option, if any, is put before it.
        if option:
            return f"{option}: {message}"
        return message
    problem = message[beginning.end() :]
    separator = beginning["separator"]
    if argument in FILES:
        if separator == ": ":
            return problem
        return f"the file{separator}{problem}"
    # Other arguments are named as name=value: they become options too.
    for name, other in options.items():
        problem = re.sub(rf"\b{name}=", f"{other} ", problem)
    if option:
        return f"{option}{separator.replace('=', ' ')}{problem}"
    return message


def _option_of(argument: str, options: dict[str, str]) -> str:
    """Return the option of a command that states an argument of the library; "" if it has none.

    Args:
        argument: the name of the argument.
        options: the options of the command, as ``message_in_options`` takes them.
    """
    parameters = OPTIONS_OF.get(argument, (argument.replace("-", "_"),))
    for parameter in parameters:
        if parameter in options:
            return options[parameter]
    return ""


def be_quiet(is_given: bool) -> bool:
    """Set whether ``--quiet`` was given: then only the answer and refusals are written.

    typer calls this with the value of the flag, and takes the value that is returned.
    """
    QUIET.set(is_given)
    return is_given


def tell(line: str, colour: str | None = None) -> None:
    """Write a line that is not part of the answer to standard error, unless --quiet was given.

    Args:
        line: the line; control characters in it are made visible.
        colour: a colour of typer; None: that of the terminal.
    """
    if not QUIET.get():
        typer.secho(visible(line), fg=colour, err=True)


def warn(warnings: list[str]) -> None:
    """Write each warning to standard error; nothing is refused."""
    for warning in warnings:
        tell(f"Warning: {warning}", typer.colors.YELLOW)


def fail(message: str, code: int = 2) -> typer.Exit:
    """Write an error to standard error, and return the exception that ends the command, which the
    caller raises.

    Args:
        message: the error, without "Error: ".
        code: the exit code; 2 stands for input that is refused.
    """
    typer.secho(f"Error: {visible(message)}", fg=typer.colors.RED, err=True)
    return typer.Exit(code)


if TYPE_CHECKING:
    from rich.progress import Progress
    from typer._click.core import Context, Parameter
    from typer._click.exceptions import UsageError
else:
    UsageError = typer.BadParameter.__mro__[1]  # of the click that typer brings

# How the parser says that a value of an option cannot be read: the option, and the reason.
_INVALID = re.compile(r"Invalid value for '([^']*)'.*?: (.*)", re.DOTALL)
# Reasons in the parser's words (a pattern), and in ours.
_OUR_WORDS = (
    (r"Input should be a valid integer.*|.* is not a valid integer", "must be a whole number"),
    (r"Input should be a valid number.*|.* is not a valid float", "must be a number"),
    (r"Value error, (must be .*)", r"\1"),
    (r"Input should be greater than or equal to (.*)", r"must be at least \1"),
    (r"Input should be less than or equal to (.*)", r"must be at most \1"),
    (r"Value error, .* is not one of (.*)", r"must be one of \1"),
)
INTERRUPTED = 130  # the exit code of shells for a command that Ctrl-C ended: 128 + SIGINT


def _parser_message(error: UsageError) -> str:
    """Return one sentence on what the parser refused, with the option's name and the value that was
    given.
    """
    message = error.format_message().rstrip(".")
    invalid_value = _INVALID.fullmatch(message)
    if invalid_value is None:
        if error.ctx is None:
            return message
        return f"{message}; {error.ctx.command_path} --help lists all options"
    option, reason = invalid_value.groups()
    problem = _in_our_words(reason)
    if problem is None:
        return f"{option}: {reason}"
    # Where pydantic read the value, its error says what was typed.
    mistakes_of = getattr(error.__cause__, "errors", None)
    if mistakes_of is None:
        return f"{option} {problem}"
    first_mistake = mistakes_of()[0]
    return f"{option} {problem}, got {first_mistake['input']!r}"


def _in_our_words(reason: str) -> str | None:
    """Return a reason of the parser in the words of this package, such as "must be a number"; None
    if it is not among _OUR_WORDS.
    """
    for pattern, our_words in _OUR_WORDS:
        if re.fullmatch(pattern, reason):
            return re.sub(f"^(?:{pattern})$", our_words, reason)
    return None


# Exit codes that a script may tell apart; all other input that is refused exits with 2.
EXIT_CODES: dict[type[DptopkError], int] = {BudgetExceeded: 3, LedgerError: 4}


class _ReadableHelp:
    """Commands whose help names no value for flags, shows the most used options first, and fills
    the lines of the terminal.
    """

    def __init__(self, *, help: str | None = None, **options: object) -> None:  # noqa: A002
        """Make the command; ``help`` and ``options`` are as typer's class for it takes them."""
        super().__init__(help=_without_line_breaks(help), **options)  # type: ignore[call-arg]

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return the options of a command as its help shows them.

        A flag has an empty metavar. Of a command that asks a question, the options that few need
        are moved to a panel "Advanced".
        """
        params: list[Parameter] = super().get_params(ctx)  # type: ignore[misc]
        asks_question = any(param.name == "k" for param in params)
        for param in params:
            if not isinstance(param, typer.core.TyperOption):
                continue
            if param.is_flag and param.metavar is None:
                param.metavar = ""
            if asks_question and param.name not in FIRST_SHOWN and param.rich_help_panel is None:
                param.rich_help_panel = "Advanced"
        return params


def _without_line_breaks(text: str | None) -> str | None:
    """Return a help text with each paragraph in one line: rich breaks lines at the width of the
    terminal, and would also keep those of the docstring.
    """
    if text is None:
        return None
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _import_message(error: ImportError) -> str:
    """Return what to install for a module that is missing; the error's own message where no extra
    brings the module.
    """
    module = (error.name or "").split(".")[0]
    for extra, modules in MODULES_OF_EXTRA.items():
        if module in modules:
            return f"this needs {error.name}: pip install 'dptopk[{extra}]'"
    return str(error)


class Group(_ReadableHelp, typer.core.TyperGroup):
    """The root command: it turns every error into one line on standard error and an exit code,
    without a traceback and without data.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run the command line and exit; input that cannot be parsed is refused in one line, and an
        interrupt exits with 130.

        The arguments are those of click's ``Command.main``. ``standalone_mode`` has no effect:
        errors always come here, and never to click's own handlers.

        Raises:
            SystemExit: always, with the exit code.
        """
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            raise SystemExit(code)
        except UsageError as error:
            # By its name, because typer brings a click of its own: no arguments, so show the help.
            if type(error).__name__ == "NoArgsIsHelpError" and error.ctx is not None:
                typer.echo(error.ctx.get_help())
                raise SystemExit(0) from None
            raise SystemExit(fail(_parser_message(error)).exit_code) from None
        except typer.Abort:
            raise SystemExit(INTERRUPTED) from None

    def invoke(self, ctx: Context) -> Any:
        """Run the command, and turn an error of the library, of an import or of a file into one
        line.

        Args:
            ctx: click's record of the command; its "options" are those of ``Command.parse_args``.

        Raises:
            typer.Exit: with a code of EXIT_CODES, 1 where input or output failed, else 2.
        """
        try:
            return super().invoke(ctx)
        except BudgetExceeded as error:
            raise fail(
                "budget exceeded, and nothing was charged: "
                f"{error.reason or 'too little is left'}. This needs "
                f"{rounded_up(error.requested)}; left: {error.remaining}. Lower --epsilon or "
                "--delta, or ask for a larger budget",
                EXIT_CODES[BudgetExceeded],
            ) from None
        except InvalidParameter as error:
            raise fail(message_in_options(error, ctx.meta.get("options", {}))) from None
        except DptopkError as error:
            raise fail(str(error), EXIT_CODES.get(type(error), 2)) from None
        except ImportError as error:
            raise fail(_import_message(error)) from None
        except BrokenPipeError:
            raise  # ``main`` ends quietly
        except OSError as error:
            # A file that is not there is input that is refused; all else is a failure of the disk.
            code = 2 if isinstance(error, FileNotFoundError) else 1
            raise fail(
                f"{error.filename or 'input or output'}: {error.strerror or error}", code
            ) from None


class Subgroup(_ReadableHelp, typer.core.TyperGroup):
    """A group of commands below the root, such as ``dptopk ledger``, whose help is shown like the
    root's.
    """


class Command(_ReadableHelp, typer.core.TyperCommand):
    """A command whose flags are shown without a type, and whose errors name options instead of
    arguments.
    """

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the arguments, and store the names of the options for ``message_in_options``."""
        named_options = [param for param in self.params if param.opts[0].startswith("--")]
        ctx.meta["options"] = {param.name: param.opts[0] for param in named_options}
        return super().parse_args(ctx, args)


class Guided(Command):
    """A command that asks questions at a terminal if it is given a file and no options."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the arguments; if there is only a file, first ask for the options."""
        has_only_file = len(args) == 1 and not args[0].startswith("-")
        if has_only_file and sys.stdin.isatty() and sys.stdout.isatty():
            from dptopk.cli.guide import ask_for_arguments

            args = [*args, *ask_for_arguments(args[0], self.params)]
            command = shlex.join(["dptopk", "topk", *args])
            ctx.call_on_close(lambda: typer.echo(f"\nThe same without questions:\n  {command}"))
        return super().parse_args(ctx, args)


@contextmanager
def progress() -> Iterator[Progress]:
    """Open progress bars on standard error for a ``with`` block; they are shown on a terminal only,
    and removed at the end of the block.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    hidden = QUIET.get() or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bars:
        yield bars


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show one progress bar for a ``with`` block.

    Args:
        what: the work in words, which stands before the bar.

    Yields:
        The function that moves the bar; it takes how much is done, and of what total.
    """
    with progress() as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def log_to_stderr() -> None:
    """Write the package's log, step by step, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("dptopk")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
