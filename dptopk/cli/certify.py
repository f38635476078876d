"""``dptopk certify``: a file from which an auditor can check an ε without this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptopk._internal.formatting import format_upper


def certify(
    charge: Annotated[
        str, typer.Argument(help='Costs, such as "1000*BR(0.1)" or "200*BR(0.1) + ZCDP(0.07)".')
    ],
    delta: Annotated[float, typer.Option(help="The δ at which ε is certified.")],
    out: Annotated[Path, typer.Option(help="Where to write the certificate.")],
) -> None:
    """Certify the ε of a charge, spent in any order; checker/check_certificate.py checks the
    file.
    """
    from dptopk.accounting.bounds import compose
    from dptopk.cli.target import check_target
    from dptopk.cli.terms import costs_of

    check_target(out)
    bound = compose(costs_of(charge, "CHARGE"), delta=delta, certificate=True)
    certificate = bound.certificate
    assert certificate is not None  # noqa: S101 - compose raises where there is none
    certificate.write(out)
    proven = f"({format_upper(certificate.epsilon, 7)}, {format_upper(certificate.delta)})-DP"
    typer.echo(
        f"{certificate.charge} is {proven}, in any order: {out}, {len(certificate.text)} bytes."
    )
    typer.echo(
        f"The best bound without a certificate is ε = {format_upper(bound.epsilon, 7)}, by "
        f"{bound.name}."
    )
    typer.echo(f"Check it with: python check_certificate.py {out}")
