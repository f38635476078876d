"""Cadir, Najib and Shkel: trade-off functions, privacy regions, two-epsilon composition."""
