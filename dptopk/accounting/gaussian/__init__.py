"""Gaussian noise, continuous and discrete: one pair, and its compositions."""
