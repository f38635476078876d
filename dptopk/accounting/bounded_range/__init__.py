"""Composition of bounded ranges: closed forms, and the optima of analysts who do not adapt."""
