"""Charges that the first public version recorded are drawn as they were charged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dptopk.costs import Charge
from dptopk.errors import LedgerError
from dptopk.histogram.event_counts import EventCounts, finding_sensitivity
from dptopk.histogram.histogram import Histogram
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.questions import charge_of, record_of, revive

FOLDER = Path(__file__).parent / "records"
CHARGES = json.loads((FOLDER / "charges.json").read_text(encoding="utf-8"))
CATALOG = load_catalog(FOLDER / "catalog.toml")


@pytest.mark.parametrize("place", range(len(CHARGES)))
def test_a_charge_of_the_first_version_is_revived(place):
    written = CHARGES[place]
    spec, record = CATALOG.datasets[written["dataset"]], written["record"]
    charge = Charge.parse(written["charge"])
    question, plan = revive(spec, record, charge)
    assert question.equals_json(record["question"])  # its key still means the same question
    assert charge.includes(charge_of(spec, question, plan))
    if "looks" not in written:
        assert str(charge_of(spec, question, plan)) == written["charge"]
    again = record_of(question, plan)
    assert again["text"] == record["text"]
    assert again.get("phases") == record.get("phases")
    with pytest.raises(LedgerError, match="its charge stays"):
        revive(spec, record, Charge.parse("DP(9.5)"))


EVENTS = [
    place
    for place, written in enumerate(CHARGES)
    if written["record"].get("phases", [{}])[0].get("name") == "find"
]


@pytest.mark.parametrize("place", EVENTS)
def test_a_revived_plan_of_events_draws_at_the_charge_of_its_record(place):
    written = CHARGES[place]
    spec = CATALOG.datasets[written["dataset"]]
    _, plan = revive(spec, written["record"], Charge.parse(written["charge"]))
    counts = {f"label {place}": 10**6 - 10**3 * place for place in range(120)}
    found = finding_sensitivity(
        plan.reading.finding.labels_per_user, 1, weights=plan.reading.finding.weights
    )
    many = {label: 100 * count for label, count in counts.items()}
    data = EventCounts.of_histograms(Histogram(counts), Histogram(many, sensitivity=found))
    release = plan.release(data)
    assert plan.charge.includes(release.charge)
    assert 0 < len(release) <= plan.k
