"""Privacy losses: their finite laws, exact and on lattices, and their log-MGFs; no bound is
registered here.
"""
