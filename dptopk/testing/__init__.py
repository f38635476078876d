"""What a mechanism or an engine of one's own is tested with: one call for each."""

from dptopk.datasets.backends.registration import check_backend as check_backend
from dptopk.testing.conformance import Report as Report, check_mechanism as check_mechanism
from dptopk.testing.findings import Finding as Finding
