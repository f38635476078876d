"""Loaders, shipped counts, generators and contribution bounding; no privacy logic."""
