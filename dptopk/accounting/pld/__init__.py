"""Privacy loss distributions: finite laws of the privacy loss, exact and on lattices; no bound is registered here."""
