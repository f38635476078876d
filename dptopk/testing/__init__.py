"""Conformance tests for mechanisms and engines of other packages: one call for each."""

from dptopk.datasets.backends.registration import check_backend as check_backend
from dptopk.testing.conformance import (
    ConformanceReport as ConformanceReport,
    check_mechanism as check_mechanism,
)
from dptopk.testing.mismatches import Mismatch as Mismatch
