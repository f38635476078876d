"""``dptopk audit``: search for a certified counterexample to a privacy claim."""

from __future__ import annotations

import importlib
import runpy
from dataclasses import asdict
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptopk._internal.json_text import readable_json
from dptopk.cli.options import Cap
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.costs import Budget, Charge

LabelsPerUser = Annotated[
    int | None,
    typer.Option("--labels-per-user", metavar="Δ", help="One user touches at most Δ labels."),
]
Labels = Annotated[int, typer.Option("--labels", help="Number of labels in the small histograms.")]
KnownDomain = Annotated[
    bool, typer.Option("--known-domain", help="The labels are public, as for Known* mechanisms.")
]


def audit(
    mechanism: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="A function from a dict label -> count to an answer: package.module:name, or "
            "file.py:name.",
        ),
    ],
    claim: Annotated[
        str | None,
        typer.Option(help='The claimed charge, such as "BR(1)" or "DP(1) + delta(1e-6)".'),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Instead of --claim: the claimed ε.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The claimed δ.")] = 0.0,
    labels_per_user: LabelsPerUser = 1,
    per_label_cap: Cap = 1,
    labels: Labels = 3,
    known_domain: KnownDomain = False,
    seconds: Annotated[float, typer.Option(help="Time for the search, in seconds.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Write the report as JSON.")] = False,
) -> None:
    """Search small neighbouring histograms for a proof that a mechanism is not as private as
    claimed.

    Exit code 0: nothing found (which is no proof); 1: refuted; 2: a wrong argument.
    """
    from dptopk.audit.counterexamples import audit as search
    from dptopk.audit.worlds import World
    from dptopk.histogram.histogram import Sensitivity

    claimed_guarantee = _claimed_guarantee(claim, epsilon, delta)
    world = World(
        Sensitivity(linf=per_label_cap, l0=labels_per_user), labels=labels, public=known_domain
    )
    audited_function = load(mechanism)
    if not callable(audited_function) and not hasattr(audited_function, "many"):
        raise InvalidParameter(
            "mechanism: an audit takes a function of a dict of counts, dptopk attest a mechanism"
        )
    report = search(audited_function, claimed_guarantee, world=world, seconds=seconds)
    if as_json:
        typer.echo(readable_json(asdict(report)), nl=False)
    else:
        typer.echo(str(report))
    raise typer.Exit(1 if report.finding else 0)


def _claimed_guarantee(claim: str | None, epsilon: float | None, delta: float) -> Budget | Charge:
    """Return the guarantee that --claim, or else --epsilon with --delta, states.

    Args:
        claim: a charge as text, or None.
        epsilon: the ε that is claimed instead, or None.
        delta: the δ beside ``epsilon``.

    Raises:
        InvalidParameter: unless exactly one of --claim and --epsilon is given.
    """
    from dptopk.cli.terms import costs_of
    from dptopk.costs import Budget

    if claim is not None and epsilon is None:
        return costs_of(claim, "--claim")
    if epsilon is not None and claim is None:
        return Budget(epsilon, delta)
    raise InvalidParameter("give exactly one of --claim and --epsilon")


def load(place: str) -> Any:
    """Return the object that "module:name" or "file.py:name" names; the module or file is run.

    Raises:
        InvalidParameter: when it cannot be imported, or does not exist.
    """
    home, _, name = place.rpartition(":")
    if not home or not name:
        raise InvalidParameter(f"mechanism must be module:name or file.py:name, got {place!r}")
    try:
        module: ModuleType | SimpleNamespace
        if home.endswith(".py"):
            module = SimpleNamespace(**runpy.run_path(home))
        else:
            module = importlib.import_module(home)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of the user's, which runs
        raise InvalidParameter(
            f"mechanism: cannot load {place!r}: {type(error).__name__}: {error}"
        ) from None
    if not hasattr(module, name):
        raise InvalidParameter(f"mechanism: there is no {name!r} in {home!r}")
    return getattr(module, name)
