"""The options of commands that ask a question, made from the fields of ``Question``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field
from inspect import Parameter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from dptopk.question import Question, asking_of, default_of, offered_fields


def question_parameters(kind: type[Question] = Question) -> list[Parameter]:
    """Return a keyword parameter, annotated with its option, for each field that the command line
    offers.
    """
    hints = get_type_hints(kind)
    return [_parameter(field, hints[field.name]) for field in offered_fields("cli", kind)]


def _parameter(field: Field[Any], hint: Any) -> Parameter:
    """Return the keyword parameter of a field, with its default on the command line."""
    required = field.default is MISSING and field.default_factory is MISSING
    default = Parameter.empty if required else default_of(field, "cli")
    annotation = _option(field, hint)
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option(field: Field[Any], hint: Any) -> Any:
    """Return the annotated type of a field's option.

    typer can read every type of a field but "a number or one of these words"; an option of that
    kind is read by a function of ours.
    """
    asking = asking_of(field)
    words = _words(hint)
    names = _flag(field.name) if bool in _parts(hint) else []
    parser = _reader(words) if words and float in _parts(hint) else None
    option = typer.Option(
        *names,
        help=asking.help,
        metavar=asking.metavar,
        rich_help_panel=asking.panel,
        parser=parser,
        autocompletion=_designs if field.name == "method" else None,
    )
    return Annotated[Any if parser else hint, option]


def _flag(name: str) -> list[str]:
    """Return the two names of a true-or-false option: --fit/--no-fit for "fit"."""
    word = name.replace("_", "-")
    return [f"--{word}/--no-{word}"]


def _parts(hint: Any) -> tuple[Any, ...]:
    """Return the types that a union consists of, nested unions taken apart; else the type alone."""
    if get_origin(hint) not in (Union, UnionType):
        return (hint,)
    parts: list[Any] = []
    for member in get_args(hint):
        parts += _parts(member)
    return tuple(parts)


def _words(hint: Any) -> list[str]:
    """Return the words that a value may be: those of its ``Literal`` types, and "none" if it may be
    None too.
    """
    words = [
        word for part in _parts(hint) if get_origin(part) is Literal for word in get_args(part)
    ]
    if words and NoneType in _parts(hint):
        return [*words, "none"]
    return words


def _reader(words: list[str]) -> Callable[[str], float | str | None]:
    """Return a parser for an option that takes a number or one of the words; "none" stands for
    None.

    Args:
        words: the words, perhaps with "none" among them.
    """

    def read(text: str) -> float | str | None:
        """Return the number, the word, or None for "none".

        Raises:
            ValueError: for another text.
        """
        if text in words:
            if text == "none":
                return None
            return text
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"must be {', '.join(words)} or a number") from None

    return read


def _designs() -> list[str]:
    """Return the names that --method accepts, for completion in a shell."""
    from dptopk.planning.designs import method_names

    return list(method_names())
