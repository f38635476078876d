"""Composition of bounded ranges: closed forms, and the optima of analysts who do not adapt."""

from dptopk.accounting.bounded_range.nonadaptive import (
    br_nonadaptive_delta as br_nonadaptive_delta,
    br_nonadaptive_epsilon as br_nonadaptive_epsilon,
)
from dptopk.accounting.bounded_range.nonadaptive_heterogeneous import (
    br_heterogeneous_bracket as br_heterogeneous_bracket,
)
from dptopk.accounting.bounded_range.nonadaptive_with_dp import (
    br_dp_nonadaptive_delta as br_dp_nonadaptive_delta,
    br_dp_nonadaptive_epsilon as br_dp_nonadaptive_epsilon,
)
