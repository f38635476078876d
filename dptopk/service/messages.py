"""This module says what is wrong with a request, in words: of each value that does not fit, its
name and what it must be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

WORDS = {  # what is said, with what pydantic says of the limit: of which kinds of its errors
    "is missing": "missing",
    "is not known": "extra_forbidden",
    "must be at least {ge}": "greater_than_equal",
    "must be above {gt}": "greater_than",
    "must be at most {le}": "less_than_equal",
    "must be below {lt}": "less_than",
    "must be one of {expected}": "literal_error",
    "must have at least {min_length} characters": "string_too_short",
    "must have at most {max_length} characters": "string_too_long",
    "must have at least {min_length} entries": "too_short",
    "must have at most {max_length} entries": "too_long",
    "must be a whole number": "int_type int_from_float int_parsing",
    "must be a number": "float_type float_parsing",
    "must be a finite number": "finite_number",
    "must be text": "string_type",
    "must be a list": "list_type",
    "must be an object in JSON": "dict_type model_type model_attributes_type",
    "is no JSON": "json_invalid",
}
WORDS_OF_KIND = {kind: words for words, kinds in WORDS.items() for kind in kinds.split()}
KINDS = {"TopK", "Run"}  # which a body may be: pydantic tells what is wrong with it as each of them


def in_words(errors: Iterable[Mapping[str, Any]]) -> str:
    """The errors of a request, one sentence for all, without the values that it came with."""
    kinds = defaultdict(list)
    for error in errors:
        where = [str(part) for part in error["loc"]]
        if where[0] == "body" and where[1:] and where[1] in KINDS:
            kind = where.pop(1)
        else:
            kind = ""
        kinds[kind].append((where, error))
    lines = [_line(*one) for one in kinds.pop("", [])]
    if kinds:
        lines += [_line(*one) for one in min(kinds.values(), key=_misfits)]
    return "; ".join(dict.fromkeys(lines))


def _misfits(kind: list[tuple[list[str], Mapping[str, Any]]]) -> int:
    """Return how many keys are not those of this kind of body."""
    return sum(error["type"] in {"missing", "extra_forbidden"} for _, error in kind)


def _line(where: list[str], error: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    name = ".".join(where[1:]) or "the body"
    if error["type"] == "json_invalid":  # which names a place in the text
        name = "the body"
    words = WORDS_OF_KIND.get(error["type"], "is not what it must be")
    return f"{name} {words.format(**error.get('ctx', {}))}"
