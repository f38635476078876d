"""Composition of (ε, δ)-DP costs: equal ones, and two different ones."""
