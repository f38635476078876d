"""Rényi curves: log-MGFs, concentrated DP, and their conversions to (ε, δ)."""
