"""The statement about a data set for auditors and for a public registry of deployments.

The groups are those of the OpenDP deployments registry (its transparency tiers): basic facts, the
privacy guarantee, its unit, the accounting, the implementation. What only the curator knows is
taken from the caller, or is None.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dptopk._internal.formatting import escape, html_table
from dptopk.errors import InvalidParameter
from dptopk.ledger.names import plain_text

if TYPE_CHECKING:
    from dptopk.ledger.dataset import DatasetState
    from dptopk.ledger.reader import Reader
    from dptopk.ledger.recorded import RecordedTerms
    from dptopk.ledger.spends import Spend

# The facts that only the curator knows; None in a statement where they are not given.
FACTS_OF_CURATOR = (
    "curator",
    "intended_use",
    "data_product",
    "published",
    "population",
    "access_control",
    "parameters_chosen",
)
# What no answer of this package protects.
UNPROTECTED = (
    "facts about groups, which are learnt with or without any one unit",
    "the parameters of questions: k, budgets, caps, labels of a public domain",
    "when and how often questions are asked, and the time and memory that answers take",
    (
        "contributions beyond the caps, where counts and not events were given: the caps are then "
        "the curator's statement"
    ),
    "the raw data itself, in memory and at rest",
)


def statement(
    ledger: Reader, dataset: str, about: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a disclosure about a data set as JSON can hold it.

    Everything is taken from the ledger, except for what the curator states.

    Args:
        ledger: the ledger.
        dataset: the name of the data set.
        about: what no ledger knows, as text: curator, intended_use, data_product, published,
            population, access_control, parameters_chosen (how the parameters were chosen, and
            whether anybody saw the data before).

    Returns:
        Nested dictionaries; ε is an upper bound at every moment, now and later, until the budget is
        renewed.

    Raises:
        InvalidParameter: for other keys, or a data set that is not in the ledger.
    """
    statements = dict(about or {})
    if not statements.keys() <= set(FACTS_OF_CURATOR):
        raise InvalidParameter(f"about must name {', '.join(FACTS_OF_CURATOR)}")
    for name, text in statements.items():
        plain_text(**{name: text})  # refuses a text that cannot be shown
    state = ledger.state(dataset)
    return {
        "basic": {
            "dataset": dataset,
            "version": state.version,
            **{key: statements.get(key) for key in FACTS_OF_CURATOR},
        },
        "guarantee": _guarantee(state),
        "unit": {
            "unit": state.unit,
            "neighbours": state.sensitivity.neighbours,
            "caps": {"labels_per_unit": state.sensitivity.l0, "per_label": state.sensitivity.linf},
            "segments": state.segments,
            "not_protected": list(UNPROTECTED),
        },
        "accounting": _accounting(state, ledger.history(dataset)),
        "implementation": _implementation(ledger),
    }


def _guarantee(state: DatasetState) -> dict[str, Any]:
    """Return the guarantee of a data set's budget; its ε is an upper bound at every moment."""
    total = state.account.summary()
    if total.delta:
        flavor = "approximate differential privacy"
    else:
        flavor = "pure differential privacy"
    return {
        "flavor": flavor,
        "epsilon": total.epsilon_total,
        "delta": total.delta,
        **zcdp_of(state.terms),
        "holds": "for everything released under this budget together, at every moment",
        "renewals": state.renewals,
        "charged_ever": str(state.spent(lifetime=True)),
        "deployment_model": "central: a trusted curator holds the data and adds the noise",
    }


def _accounting(state: DatasetState, spends: Sequence[Spend]) -> dict[str, Any]:
    """Return how the guarantee is accounted for, and how often each mechanism was charged.

    Args:
        state: the state of the data set.
        spends: all its charges.
    """
    times_charged = Counter(map(_mechanism_name, spends))
    return {
        "terms": state.terms,
        "theorem": _theorem_of(state.terms),
        "spent": str(state.spent()),
        "share_used": state.account.summary().share,
        "mechanisms": [
            {"mechanism": name, "charged": times} for name, times in sorted(times_charged.items())
        ],
        "post_processing": "answers are released as drawn; whatever is computed from them "
        "costs nothing",
    }


def _implementation(ledger: Reader) -> dict[str, Any]:
    """Return the versions of the programs, the source of the noise, and the end of the log."""
    head = ledger.head()
    return {
        "dptopk": version("dptopk"),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "noise": "integers, exact; random words from OpenSSL or the operating system",
        "test_ledger": ledger.test,
        "chain": {"entries": head["seq"], "head": head["hash"]},
        "reviewed_by_outsiders": False,
    }


def _mechanism_name(spend: Spend) -> str:
    """Return what a charge was for, in the words of its record, or "unnamed"."""
    recorded = spend.mechanism.get("text") or spend.mechanism.get("name")
    return str(recorded or "unnamed")


def _theorem_of(terms: RecordedTerms) -> dict[str, str]:
    """Return the name and the source of the theorem by which the guarantee of a budget holds."""
    if "filter" in terms:
        return {"name": "filter", "source": "fully adaptive filter: docs/budgets.md"}
    if "guarantee" not in terms:  # no theorem gives a finite ε at this δ
        return {"name": "none", "source": ""}
    guarantee = terms["guarantee"]
    return {"name": guarantee["name"], "source": guarantee["source"]}


def zcdp_of(terms: Mapping[str, Any]) -> dict[str, float]:
    """Return the ρ of a budget in ρ ("rho"), and the δ with which its zCDP may fail
    ("failure_delta"); empty for other terms.
    """
    budget = terms.get("budget", [])  # [ε, δ], or [ε, δ, ρ] where it is stated in ρ
    if len(budget) < 3:
        return {}
    return {"rho": budget[2], "failure_delta": terms["filter"]["failure_delta"]}


def statement_page(statement_of_dataset: Mapping[str, Any]) -> str:
    """Return a disclosure, as ``statement`` makes it, as an HTML page that loads nothing else."""
    title = f"Privacy statement: {escape(statement_of_dataset['basic']['dataset'])}"
    page = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>',
        f"<h1>{title}</h1>",
    ]
    for name, group in statement_of_dataset.items():
        page += [f"<h2>{name}</h2>", html_table(["what", "stated"], list(_rows_of(group)))]
    return "\n".join([*page, "</body></html>\n"])


def _rows_of(part: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the rows (name, value) of a nested part; a nested name is "outer, inner".

    Args:
        part: a mapping, a list or a value.
        name: the name of the part; "": it has none.
    """
    if name.endswith("budget") and isinstance(part, list):
        # Budget.terms writes ε and δ, or null, δ and ρ.
        names = ("epsilon", "delta", "rho")
        pairs = zip(names, part, strict=False)
        part = {key: value for key, value in pairs if value is not None}
    if not isinstance(part, Mapping | list) or not part:  # an empty part has a row of its own
        yield name.replace("_", " "), "not stated" if part is None else part
        return
    if isinstance(part, list):
        for value in part:
            yield from _rows_of(value, name)
        return
    for key, value in part.items():
        words = [word for word in (name, key) if word]
        yield from _rows_of(value, ", ".join(words))
