"""Audits: certified counterexamples to a privacy claim, found by searching small neighbouring histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.audit.adapters import from_mechanism as from_mechanism, from_opendp as from_opendp
    from dptopk.audit.claims import Claim as Claim
    from dptopk.audit.evidence import Finding as Finding
    from dptopk.audit.search import Report as Report, audit as audit
    from dptopk.audit.worlds import World as World
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".adapters": "from_mechanism from_opendp",
            ".claims": "Claim",
            ".evidence": "Finding",
            ".search": "Report audit",
            ".worlds": "World",
        },
    )
