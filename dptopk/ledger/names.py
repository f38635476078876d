"""Names in the ledger: what may be one, and which spellings are the same analyst."""

from __future__ import annotations

import unicodedata

from dptopk._internal import validate
from dptopk.errors import InvalidParameter

LONGEST_NAME = 200  # characters
# Letters of these alphabets look like one another.
_ALPHABETS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE")


def plain_text(**arguments: object) -> str:
    """Return the one keyword argument if it is text that can be shown: not blank, without control
    characters, and not long.

    Raises:
        InvalidParameter: naming the argument.
    """
    ((label, value),) = arguments.items()
    text = validate.text(**arguments)
    if not text.isprintable() or not text.strip() or len(text) > LONGEST_NAME:
        raise InvalidParameter(
            f"{label} must be at most {LONGEST_NAME} printable characters, and not blank, got "
            f"{value!r:.80}"
        )
    return text


def canonical_name(name: str) -> str:
    """Return the one spelling of a name: compatibility forms, case and spaces do not tell analysts
    apart.
    """
    # Folding may make new compatibility forms, so that the text is normalised before and after.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(folded.split())


def analyst_name(name: object) -> str:
    """Return the canonical spelling of an analyst's name.

    Raises:
        InvalidParameter: on what ``plain_text`` refuses, or a mix of alphabets that look alike
            (Latin and Cyrillic, say).
    """
    text = canonical_name(plain_text(analyst=name))
    alphabets = set()
    for letter in text:
        if letter.isalpha():
            # A letter's name in Unicode begins with its alphabet: "LATIN SMALL LETTER A".
            alphabet, _, _ = unicodedata.name(letter, "").partition(" ")
            alphabets.add(alphabet)
    mixed = sorted(alphabets & set(_ALPHABETS))
    if len(mixed) > 1:
        raise InvalidParameter(
            f"analyst must not mix letters of {' and '.join(mixed)}, which look alike: {text!r:.80}"
        )
    return text
