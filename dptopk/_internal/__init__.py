"""Helpers of all rooms: validation, formatting, tails, caches, lazy loading."""
