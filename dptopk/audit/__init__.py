"""Tests of privacy claims on small neighbouring histograms: the search for counterexamples, and
attestations of exact laws.
"""

from dptopk.audit.adapters import from_mechanism as from_mechanism, from_opendp as from_opendp
from dptopk.audit.attestation import Attestation as Attestation, attest as attest
from dptopk.audit.claims import Claim as Claim
from dptopk.audit.counterexamples import AuditReport as AuditReport, audit as audit
from dptopk.audit.event_worlds import EventsWorld as EventsWorld
from dptopk.audit.evidence import Counterexample as Counterexample
from dptopk.audit.worlds import World as World
