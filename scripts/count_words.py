"""Make the shipped word table of Macbeth: every distinct word of a text with its count.

    python scripts/count_words.py macbeth.txt dptopk/datasets/data/macbeth.csv

A word is a match of ``[a-z]+('[a-z]+)*`` in the lower-cased text: letters, with apostrophes inside
a word kept. Rows are ordered by falling count, then by word. The text is the First Folio's, as
Project Gutenberg and others have it; the text itself is not shipped, counts are facts.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from pathlib import Path

WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")


def count_words(text: str) -> list[tuple[str, int]]:
    """(word, count) for every distinct word, by falling count, then by word."""
    counts = Counter(WORD.findall(text.lower()))
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def main() -> None:
    """Read the text named first on the command line, write the table named second."""
    source, target = map(Path, sys.argv[1:])
    with target.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["word", "count"])
        writer.writerows(count_words(source.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
