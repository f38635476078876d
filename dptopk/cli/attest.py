"""``dptopk attest``: the exact laws of a mechanism on small histograms, in a file that an auditor can check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptopk.errors import InvalidParameter


def attest(
    mechanism: Annotated[
        str,
        typer.Argument(metavar="MECHANISM", help='Such as "KnownLaplace(epsilon=1.0)", or file.py:name, module:name.'),
    ],
    labels_per_user: Annotated[
        int | None, typer.Option("--labels-per-user", metavar="Δ", help="One user touches at most Δ labels.")
    ] = 1,
    per_label_cap: Annotated[
        int, typer.Option("--per-label-cap", metavar="τ", help="One user moves one count by at most τ.")
    ] = 1,
    labels: Annotated[int, typer.Option("--labels", help="Labels in the small histograms.")] = 2,
    levels: Annotated[str, typer.Option("--levels", help='Counts of a label, such as "0-2,14-15".')] = "0-2",
    known_domain: Annotated[bool, typer.Option("--known-domain", help="List labels with count 0 too.")] = False,
    claim: Annotated[
        str | None, typer.Option("--claim", help='Instead of its own charge, such as "BR(1)" or "DP(1) + delta(1e-6)".')
    ] = None,
    slack: Annotated[float, typer.Option("--slack", help="How exact each δ must be.")] = 1e-9,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the laws here; checker/check_attestation.py checks the file.")
    ] = None,
) -> None:
    """List the exact laws of a mechanism on all small histograms, and compare all neighbours with its charge.

    Exit code 0: the charge holds there; 1: it does not; 2: a wrong argument, or a law that cannot be listed.
    """
    from dptopk.audit.attestation import SmallWorld, attest as made
    from dptopk.cli.audit import load
    from dptopk.costs import Charge
    from dptopk.histogram.histogram import Sensitivity
    from dptopk.mechanisms.named import parse_mechanism

    named = parse_mechanism(mechanism) if "(" in mechanism else load(mechanism)
    sensitivity = Sensitivity(linf=per_label_cap, l0=labels_per_user)
    world = SmallWorld(sensitivity, labels, _levels(levels), "public" if known_domain else "private")
    found = made(named, world, claim=None if claim is None else Charge.parse(claim), slack=slack)
    typer.echo(str(found))
    if out is not None:
        try:
            found.write(out)
        except OSError as error:
            raise InvalidParameter(f"--out: cannot write {str(out)!r}: {error.strerror}") from None
        typer.echo(f"Check it with: python check_attestation.py {out}")
    raise typer.Exit(0 if found.holds else 1)


def _levels(text: str) -> tuple[int, ...]:
    """The integers of "0-2,14": 0, 1, 2, 14."""
    try:
        ends = [[int(end) for end in part.split("-", 1)] for part in text.split(",")]
    except ValueError:
        raise InvalidParameter(f'levels must be counts and ranges, such as "0-2,14-15", got {text!r}') from None
    return tuple(sorted({level for part in ends for level in range(part[0], part[-1] + 1)}))
