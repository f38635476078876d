"""The command line: ``dptopk topk | plan | compose | demo | reproduce | ledger | datasets``."""

from dptopk.cli.app import app, main

__all__ = ["app", "main"]
