"""The command line: ``dptopk topk | plan | compose | demo | reproduce | ledger | datasets``."""

try:
    from dptopk.cli.commands import app, main
except KeyboardInterrupt:  # while it is still being loaded: as quiet as later
    raise SystemExit(130) from None

__all__ = ["app", "main"]
