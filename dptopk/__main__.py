"""``python -m dptopk``."""

from dptopk.cli import main

main()
