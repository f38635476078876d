"""Theorems of the papers that the engine has superseded: for the full table, the figures and the
tests.
"""
