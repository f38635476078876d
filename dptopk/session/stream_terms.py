"""The terms of a stream, which its file and the ledger hold: what was charged, for which days."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from dptopk._internal import validate
from dptopk._internal.json_text import canonical_json, fingerprint
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram
from dptopk.histogram.labels import to_plain
from dptopk.mechanisms.continual import ContinualTopK
from dptopk.release.release import to_json
from dptopk.session.budget_backend import LedgerBudget
from dptopk.session.stream_calendar import Calendar


def mechanism_in(terms: dict[str, Any]) -> ContinualTopK:
    """Return the mechanism that a stream's terms name."""
    settings = {name: value for name, value in terms["mechanism"].items() if name != "name"}
    return ContinualTopK(**settings)


def stream_key(name: str, day: int | None = None) -> str:
    """Return the key in the ledger of a stream's charge, or of the record of one of its days.

    Args:
        name: the stream's name.
        day: the day's number, from 1; None: the charge of the whole stream.
    """
    if day is None:
        return fingerprint(["stream", name])
    return fingerprint(["stream", name, day])


def charged_terms(book: LedgerBudget, name: str) -> dict[str, Any] | None:
    """Return the terms of the stream that was charged under a name; None if there is none."""
    spend = book.asked(stream_key(name))
    if spend is None:
        return None
    return dict(spend.mechanism.get("stream", {}))


def refuse_other_terms(terms: dict[str, Any], existing: dict[str, Any] | None, place: str) -> None:
    """Refuse terms that differ from those of a stream that exists.

    Args:
        terms: the terms that are asked for.
        existing: the terms of the stream; None: there is none, and all terms are fine.
        place: the beginning of the message: where the stream was found.

    Raises:
        InvalidParameter: naming the terms that differ.
    """
    if existing is not None and existing != terms:
        changed = [term for term, value in terms.items() if existing.get(term) != value]
        raise InvalidParameter(
            f"{place} {existing.get('stream')!r} has other terms ({', '.join(changed)})"
        )


def terms_of_stream(
    name: str, mechanism: ContinualTopK, day_shape: Histogram, calendar: Calendar
) -> dict[str, Any]:
    """Return the terms of a stream as JSON holds them; nothing in them depends on the data.

    Args:
        name: the stream's name.
        mechanism: its mechanism.
        day_shape: a histogram with the sensitivity and the domain of a day's.
        calendar: the dates of its days.

    Raises:
        InvalidParameter: for another mechanism, days that have no date, or public labels that are
            not all written down.
    """
    validate.instance(ContinualTopK, mechanism=mechanism)
    calendar.name(mechanism.days)  # refuses days that have no date
    labels = None
    if day_shape.domain == "public":
        if day_shape.domain_size != len(day_shape.labels):
            raise InvalidParameter(
                "histogram: a stream needs the public labels themselves, written down"
            )
        labels = [
            len(day_shape.labels),
            fingerprint([to_plain(label) for label in day_shape.labels.tolist()]),
        ]
    terms = {
        "stream": name,
        "mechanism": to_json(mechanism),
        "sensitivity": day_shape.sensitivity.plain(),
        "labels": labels,
        "calendar": asdict(calendar),
    }
    return dict(json.loads(canonical_json(terms)))
