"""For the documentation: the site ships MathJax itself (a MkDocs hook), taken from the package that
holds it.

One file with its fonts as SVG, so that the page asks no other host, and nothing else of MathJax is
needed.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any) -> Files:
    """Add MathJax to the files of the site."""
    package = find_spec("mathjax")
    if package is None or package.origin is None:
        raise SystemExit("MathJax is missing: pip install '.[docs]'")
    script = Path(package.origin).parent / "static" / "mathjax" / "es5" / "tex-svg-full.js"
    files.append(
        File.generated(config, "assets/mathjax.js", content=script.read_text(encoding="utf-8"))
    )
    return files
