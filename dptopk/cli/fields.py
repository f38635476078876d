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
    """Return the keyword parameter of a field, with its default on the command line.

    Args:
        field: a field of ``Question``.
        hint: its type.
    """
    required = field.default is MISSING and field.default_factory is MISSING
    default = Parameter.empty if required else default_of(field, "cli")
    annotation = _option(field, hint)
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option(field: Field[Any], hint: Any) -> Any:
    """Return the type of a field, annotated with its option as typer takes it.

    typer can read every type of a field but "a number or one of these words"; an option of that
    kind is read by a function of ours.

    Args:
        field: a field of ``Question``.
        hint: its type, such as ``float | Literal["auto"] | None``.
    """
    asking = asking_of(field)
    types = _types_in(hint)
    words = _words_in(types)
    names = _names_of_flag(field.name) if bool in types else []
    parser = _number_or_word_parser(words) if words and float in types else None
    option = typer.Option(
        *names,
        help=asking.help,
        metavar=asking.metavar,
        rich_help_panel=asking.panel,
        parser=parser,
        autocompletion=_designs if field.name == "method" else None,
    )
    return Annotated[Any if parser else hint, option]


def _names_of_flag(name: str) -> list[str]:
    """Return the two names of a true-or-false option: --fit/--no-fit for "fit"."""
    word = name.replace("_", "-")
    return [f"--{word}/--no-{word}"]


def _types_in(hint: Any) -> tuple[Any, ...]:
    """Return the types that a union consists of, nested unions taken apart; else the type alone."""
    if get_origin(hint) not in (Union, UnionType):
        return (hint,)
    types: list[Any] = []
    for member in get_args(hint):
        types += _types_in(member)
    return tuple(types)


def _words_in(types: tuple[Any, ...]) -> list[str]:
    """Return the words that a value of one of these types may be: those of ``Literal`` types, and
    "none" if there are any and it may be None too.
    """
    words: list[str] = []
    for member in types:
        if get_origin(member) is Literal:
            words += get_args(member)
    if words and NoneType in types:
        words.append("none")
    return words


def _number_or_word_parser(words: list[str]) -> Callable[[str], float | str | None]:
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
