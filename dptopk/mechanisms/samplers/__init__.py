"""Exact samplers and the laws of noise; nothing here claims privacy."""
