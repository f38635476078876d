"""The options of commands that ask a question, made from the fields of ``Question``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field
from inspect import Parameter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from dptopk.question import Question, asking_of, default_of, offered


def question_parameters(kind: type[Question] = Question) -> list[Parameter]:
    """A keyword parameter with its option for each field that the command line offers."""
    hints = get_type_hints(kind)
    return [_parameter(one, hints[one.name]) for one in offered("cli", kind)]


def _parameter(one: Field[Any], hint: Any) -> Parameter:
    required = one.default is MISSING and one.default_factory is MISSING
    default = Parameter.empty if required else default_of(one, "cli")
    annotation = _option(one, hint)
    return Parameter(one.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option(one: Field[Any], hint: Any) -> Any:
    """The type of an option: that of the field, or text that is read where it is a number or a
    word.
    """
    asking = asking_of(one)
    words = _words(hint)
    names = _flag(one.name) if bool in _parts(hint) else []
    read = _reader(words) if words and float in _parts(hint) else None
    option = typer.Option(
        *names,
        help=asking.help,
        metavar=asking.metavar,
        rich_help_panel=asking.panel,
        parser=read,
        autocompletion=_designs if one.name == "method" else None,
    )
    return Annotated[Any if read else hint, option]


def _flag(name: str) -> list[str]:
    """The two names of an option that is true or false."""
    word = name.replace("_", "-")
    return [f"--{word}/--no-{word}"]


def _parts(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(part for each in get_args(hint) for part in _parts(each))
    return (hint,)


def _words(hint: Any) -> list[str]:
    """The words that a value may be; "none" stands for None beside other words."""
    words = [
        word for part in _parts(hint) if get_origin(part) is Literal for word in get_args(part)
    ]
    if words and NoneType in _parts(hint):
        return [*words, "none"]
    return words


def _reader(words: list[str]) -> Callable[[str], float | str | None]:
    """Return what reads a number, or one of the words."""

    def read(text: str) -> float | str | None:
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
    from dptopk.planning.designs import method_names

    return list(method_names())
