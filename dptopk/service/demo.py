"""A demonstration service: the words of Macbeth and made-up events, with an analyst and an
administrator.
"""

from __future__ import annotations

from pathlib import Path

from dptopk.service.access import Access
from dptopk.service.catalog import Catalog
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.tables import Tables

CATALOG = """\
ledger = "ledger.db"

[datasets.macbeth]
source = "macbeth"
unit = "word occurrence"
labels_per_user = 1
budget = { epsilon = 10.0, delta = 1e-5 }
description = "Words of Macbeth."
"""
EVENTS = """
[datasets.articles]
source = "events.parquet"
user = "member"
item = "article"
labels_per_user = 5
unit = "member"
budget = { epsilon = 10.0, delta = 1e-5 }
description = "Made-up events: members reading articles, at most 5 of each member count."
filters = { section = ["arts", "business", "health", "news", "opinion", "science", "sport",
"travel"] }
segments = { section = 1 }
limits = { analyst = { epsilon = 6.0, delta = 5e-6 } }
"""


def demo_catalog(folder: Path) -> Catalog:
    """Write a catalog and made-up events into a folder, and return the catalog; without the extra
    ``data`` it has only Macbeth.

    Args:
        folder: an empty folder, which must outlive the service.
    """
    from importlib.util import find_spec

    text = CATALOG
    if find_spec("pyarrow") and find_spec("ibis") and find_spec("duckdb"):
        from dptopk.datasets import make_events

        make_events(folder / "events.parquet", events=100_000, users=5_000, items=2_000, seed=1)
        text += EVENTS
    (folder / "catalog.toml").write_text(text, encoding="utf-8")
    return load_catalog(folder / "catalog.toml")


def create_tokens(catalog: Catalog) -> dict[str, str]:
    """Create a token for an analyst and one for an administrator, and return them: name -> token.

    Raises:
        LedgerError: when the access database cannot be written.
    """
    tables = Tables(catalog.access)
    access = Access(tables)
    token_of_role = {"analyst": access.create("analyst"), "owner": access.create("owner", "admin")}
    tables.close()
    return token_of_role
