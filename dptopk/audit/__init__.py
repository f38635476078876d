"""Audits: certified counterexamples to a privacy claim, found by searching small neighbouring histograms."""

from dptopk.audit.adapters import from_mechanism as from_mechanism, from_opendp as from_opendp
from dptopk.audit.claims import Claim as Claim
from dptopk.audit.evidence import Finding as Finding
from dptopk.audit.search import Report as Report, audit as audit
from dptopk.audit.worlds import World as World
