"""What is wrong with a request, in words: refusals, and for each wrong value what it must be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import HTTPException

# Our words for an error (with the limit that pydantic names) -> the types of pydantic's errors.
WORDS = {
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
    "must be true or false": "bool_type bool_parsing",
    "must match the regular expression {pattern}": "string_pattern_mismatch",
}
WORDS_OF_KIND = {kind: words for words, kinds in WORDS.items() for kind in kinds.split()}
# The place of a wrong value, and pydantic's description of the error.
Located = tuple[list[str], Mapping[str, Any]]
# The models of which a body may be one: pydantic lists what is wrong with it as each of them, and
# the model's name follows "body" in the place of such an error.
MODELS = {"TopK", "Run"}


class Refusal(HTTPException):
    """A refusal of a request.

    Args:
        status: the status of HTTP.
        word: the reason in a word, for programs, which stays the same in later versions.
        message: the reason in a sentence, for people.
        headers: further headers of the answer; None: none.

    Attributes:
        word: as above.
    """

    def __init__(
        self, status: int, word: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.word = word


def in_words(errors: Iterable[Mapping[str, Any]]) -> str:
    """Return what is wrong with a request, as sentences joined by semicolons, without the values
    that it came with.

    Of a body that may be one of several models, only the errors as the most similar one are named.

    Args:
        errors: the errors, as pydantic lists them.
    """
    errors_of_model: dict[str, list[Located]] = defaultdict(list)  # "": of no certain model
    for error in errors:
        where = [str(part) for part in error["loc"]]
        model = ""
        if where[0] == "body" and len(where) > 1 and where[1] in MODELS:
            model = where.pop(1)
        errors_of_model[model].append((where, error))
    named: list[Located] = errors_of_model.pop("", [])
    if errors_of_model:
        # Keys tell the models apart: the one with the fewest wrong keys was meant.
        most_similar = min(errors_of_model.values(), key=_key_errors)
        named += most_similar
    sentences = [_sentence(where, error) for where, error in named]
    return "; ".join(dict.fromkeys(sentences))  # each once


def _key_errors(located: list[Located]) -> int:
    """Return how many of the errors are about a key that is missing or unknown."""
    return sum(error["type"] in {"missing", "extra_forbidden"} for _, error in located)


def _sentence(where: list[str], error: Mapping[str, Any]) -> str:
    """Return the name of a value and what it must be.

    Args:
        where: the place of the value, beginning with "body", "query" or "path".
        error: the error, as pydantic describes it.
    """
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    name = ".".join(where[1:]) or "the body"
    if error["type"] == "json_invalid":  # pydantic's place is a position in the text
        name = "the body"
    words = WORDS_OF_KIND.get(error["type"], "is not what it must be")
    return f"{name} {words.format(**error.get('ctx', {}))}"
