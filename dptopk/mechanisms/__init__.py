"""Private mechanisms; each states its charge before it sees any data."""
