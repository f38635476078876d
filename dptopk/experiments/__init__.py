"""The figures of the papers and our own, one figure a file."""
