"""What every room uses: validation, formatting, tails, caches, lazy loading."""
