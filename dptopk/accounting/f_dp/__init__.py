"""Trade-off functions, privacy regions and several (ε, δ) constraints at once."""
