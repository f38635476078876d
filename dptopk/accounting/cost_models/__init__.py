"""What the accounting knows about each type of cost, one module a type."""
