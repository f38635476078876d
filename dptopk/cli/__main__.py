"""``python -m dptopk.cli``."""

from dptopk.cli import main

main()
