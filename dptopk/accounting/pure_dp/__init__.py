"""Composition of (ε, δ)-DP costs: equal ones, and two different ones."""

from dptopk.accounting.pure_dp.homogeneous import (
    optimal_dp_delta as optimal_dp_delta,
    optimal_dp_epsilon as optimal_dp_epsilon,
)
from dptopk.accounting.pure_dp.two_epsilon import two_epsilon_delta as two_epsilon_delta
