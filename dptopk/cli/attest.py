"""``dptopk attest``: the exact laws of a mechanism on small histograms, in a file that an auditor
can check.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptopk.cli.audit import Labels, Listed, Touched, load
from dptopk.cli.options import Cap


def attest(
    mechanism: Annotated[
        str,
        typer.Argument(
            metavar="MECHANISM",
            help='Such as "TruncatedLaplace(epsilon=1, delta=0.01)", or file.py:name.',
        ),
    ],
    labels_per_user: Touched = 1,
    per_label_cap: Cap = 1,
    labels: Labels = 2,
    largest: Annotated[
        int, typer.Option(help="Largest count: 0, 1, 2, 3, 5, 8, ... up to it.")
    ] = 2,
    near: Annotated[
        list[int] | None, typer.Option(help="Counts near this one too: a threshold.")
    ] = None,
    known_domain: Listed = False,
    claim: Annotated[
        str | None,
        typer.Option(help='Instead of its own charge, such as "BR(1)" or "DP(1) + delta(1e-6)".'),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the laws here; checker/check_attestation.py checks the file."),
    ] = None,
) -> None:
    """List the exact laws of a mechanism on all small histograms, and compare all neighbours with
    its charge.

    Exit code 0: the charge holds there; 1: it does not; 2: a wrong argument, or a law that cannot
    be listed.
    """
    from dptopk.audit.attestation import attest as attest_laws
    from dptopk.audit.worlds import World
    from dptopk.cli.target import check_target
    from dptopk.cli.terms import costs_of
    from dptopk.histogram.histogram import Sensitivity
    from dptopk.mechanisms.named import parse_mechanism

    check_target(out)
    if "(" in mechanism:
        mechanism_object = parse_mechanism(mechanism)
    else:
        mechanism_object = load(mechanism)
    sensitivity = Sensitivity(linf=per_label_cap, l0=labels_per_user)
    world = World(sensitivity, labels, largest, known_domain, tuple(near or ()))
    claimed = None if claim is None else costs_of(claim, "--claim")
    attestation = attest_laws(mechanism_object, world, claim=claimed)
    typer.echo(str(attestation))
    if out is not None:
        attestation.write(out)
        typer.echo(f"Check it with: python check_attestation.py {out}")
    raise typer.Exit(0 if attestation.holds else 1)
