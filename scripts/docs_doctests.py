"""For the documentation: what Markdown would take for quotations in docstrings (a griffe
extension).

Doctests become fenced blocks, and an argument described as "x: > 0" keeps its sign.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

# A paragraph that starts with >>>, up to the next blank line.
_DOCTEST = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)

_AT_LEAST = re.compile(r"^(\s*[\w, ]+: )>", re.MULTILINE)


class Doctests(griffe.Extension):
    """Rewrites every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            text = _AT_LEAST.sub(r"\1\>", obj.docstring.value)
            obj.docstring.value = _DOCTEST.sub(lambda block: f"```pycon\n{block[0]}\n```", text)
