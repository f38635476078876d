"""The optimal set-wise adaptive bound: value functions, their recursion, and products of groups."""
