"""Attestations on tables of events: the reading, both phases, and a plan after a look as one law
each.
"""

from __future__ import annotations

import ast
import json
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

import dptopk
from dptopk import (
    Budget,
    CountMLE,
    KnownLaplace,
    PartitionSelection,
    Sensitivity,
    plan_continual,
    plan_topk,
)
from dptopk.audit import EventsWorld, World, attest, event_worlds
from dptopk.cli.commands import app
from dptopk.datasets.two_counts import event_counts
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import EventCounts
from dptopk.mechanisms.samplers.listing import Listing, outcomes
from dptopk.planning import plan_two_phases
from dptopk.planning.probe import Look, LookedPlan
from dptopk.planning.profile import finding_sensitivity_of
from dptopk.planning.ways import Way, calibrate_way
from dptopk.release.release import Release

from .test_attest import checked

BUDGET = Budget(6.0, 0.05)
TINY = EventsWorld(users=1, labels=2)


def two_phases(find, counts="box", cap=1, budget=BUDGET):
    return plan_two_phases(1, budget, labels_per_user=cap, find=find, counts=counts)


def test_tables_and_their_neighbours():
    world = EventsWorld(users=2, labels=2)
    assert len(world.histograms()) == 16
    # Of each pair one table has a user more: (4 - 1) sets of labels of one, 4 of the other.
    assert len(world.neighbours()) == 24
    assert ((0, 0, 1, 1), (1, 0, 1, 1)) in world.neighbours()
    assert ((0, 1, 1, 1), (1, 1, 1, 1)) not in world.neighbours()
    assert EventsWorld(users=1, labels=1, rows=2).histograms() == [(0,), (1,), (2,)]


@pytest.mark.slow
def test_tables_are_read_as_the_plan_needs_them():
    world = EventsWorld(users=2, labels=2, rows=2)
    found = world.histogram_reader(two_phases("coins"))((2, 1, 0, 2))
    assert dict(zip(found.labels, found.counts.tolist(), strict=True)) == {"a": 1, "b": 2}
    assert found.under_cap.counts.sum() == 2  # one label of each user
    capped = world.histogram_reader(PartitionSelection(epsilon=1.0, delta=0.01))((2, 2, 0, 0))
    assert capped.counts.sum() == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("find", "counts", "failure"),
    [
        ("coins", "box", 0.035),  # 0.7 of δ, as FINDING_DELTA has it
        ("coins", None, 0.035),
        ("uncapped", "box", None),
        pytest.param("threshold", "gaussian", None, marks=pytest.mark.study),
    ],
)
def test_both_phases_are_one_law(find, counts, failure, tmp_path):
    """The charge holds; where coins find labels a user alone is found with all of their δ."""
    found = attest(two_phases(find, counts), TINY, slack=1e-3)
    assert found.holds
    assert all(0 <= point.lower <= point.upper <= point.lower + 1e-3 for point in found.points)
    found.write(tmp_path / "laws.json")
    assert checked(tmp_path / "laws.json") is None
    if failure is not None:
        assert found.points[-1].lower == pytest.approx(failure, rel=1e-5)
        less = attest(two_phases(find, counts), TINY, slack=1e-3, claim=Budget(6.0, failure / 2))
        assert not less.holds


@pytest.mark.study
@pytest.mark.slow
def test_capped_counts_that_help_a_selection_are_one_law():
    """Noisy capped counts find labels, help to select one of them, and are shown."""
    way = Way("threshold", 1.0, 0.2, "capped", 2)
    scaled = calibrate_way(way, 1, BUDGET, finding_sensitivity_of(way), Sensitivity())
    plan = two_phases("threshold", "gaussian", cap=2).in_way(scaled)
    found = attest(plan, EventsWorld(users=2, labels=2), slack=1e-3)
    assert found.holds
    assert found.points[1].lower > 0.25  # of 0.53; what a user alone has is a thirtieth of that
    assert found.points[-1].lower > 0.01


@pytest.mark.slow
def test_the_default_way_by_weights_is_one_law(tmp_path):
    """Noise of a deviation of 82 on sums of weights, each value with its probability."""
    plan = two_phases("weights", cap=2, budget=Budget(8.0, 0.05))
    found = attest(plan, EventsWorld(users=1, labels=1), slack=1e-3)
    assert found.holds
    assert found.points[-1].lower > 0.024  # of 0.025 that are for finding
    found.write(tmp_path / "laws.json")
    assert checked(tmp_path / "laws.json") is None
    assert not attest(plan, found.world, slack=1e-3, claim=Budget(8.0, 0.02)).holds


@pytest.mark.study
@pytest.mark.slow
def test_two_users_with_two_labels(tmp_path):
    found = attest(two_phases("coins"), EventsWorld(users=2, labels=2), slack=1e-3)
    assert found.holds
    found.write(tmp_path / "laws.json")
    assert checked(tmp_path / "laws.json") is None


def reads_more(table, *, labels_per_user, **options):
    """Two labels of a user count, under a stated cap of one."""
    read = event_counts(table, labels_per_user=labels_per_user + 1, **options)
    stated = Sensitivity(l0=labels_per_user)
    return EventCounts.of_histograms(
        read, read.under_cap.with_counts(read.under_cap.counts, stated)
    )


def counts_rows(table, *, per_label_cap, **options):
    """Each row of a user counts, although a user counts once at a label."""
    read = event_counts(table, per_label_cap=per_label_cap + 1, **options)
    under = read.under_cap.with_counts(read.under_cap.counts, Sensitivity(l0=1))
    return EventCounts.of_histograms(read.with_counts(read.counts, Sensitivity()), under)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "world", "counts"),
    [
        (reads_more, TINY, None),
        (counts_rows, EventsWorld(users=1, labels=1, rows=2), None),
    ],
)
def test_a_wrong_reader_of_events_is_refuted(reader, world, counts, monkeypatch):
    plan = two_phases("coins", counts)
    assert attest(plan, world, slack=1e-3).holds
    monkeypatch.setattr(event_worlds, "event_counts", reader)
    found = attest(plan, world, slack=1e-3)
    assert max(point.lower - point.claimed for point in found.points) > 0.01


@pytest.mark.slow
def test_a_histogram_of_events_and_a_file_that_was_changed(tmp_path):
    mechanism = PartitionSelection(epsilon=1.0, delta=0.01)
    found = attest(mechanism, EventsWorld(users=2, labels=1))
    assert found.holds
    assert "4 tables of events of 2 users" in str(found)
    path = tmp_path / "laws.json"
    found.write(path)
    assert checked(path) is None
    for key, value, why in [
        ("users", 1, "missing"),
        ("format", "dptopk attestation 1", "format"),
        ("levels", [0, 1, 2], "missing"),
        ("points", [[0.0, 0.0, 0.0, 0.0]], "only bounded"),
    ]:
        path.write_text(json.dumps(found.to_dict() | {key: value}), encoding="ascii")
        assert why in checked(path)


def test_paths_that_come_to_one_state_go_on_as_one(monkeypatch):
    """With and without merging, the law is the same but for rounding."""

    def draw(bits):
        hidden = int(bits.below(6, 1)[0])
        parity = hidden % 2
        bits.narrow(lambda: parity)
        (shown,) = bits.below(3 + parity, 1).tolist()
        return parity, shown

    paths = []
    monkeypatch.setattr(Listing, "begin", counted(Listing.begin, paths))
    merged = outcomes(draw, 1, 100)
    number = len(paths)
    monkeypatch.setattr(Listing, "narrow", lambda *_: None)
    apart = outcomes(draw, 1, 100)
    assert merged.keys() == apart.keys()
    assert all(abs(merged[answer] - apart[answer]) < 100 for answer in merged)
    assert len(paths) - number > number


def counted(method, calls):
    def call(self):
        calls.append(None)
        return method(self)

    return call


@pytest.mark.slow
def test_a_plan_has_the_same_law_where_its_paths_are_not_merged(monkeypatch):
    plan = two_phases("coins")
    histogram = TINY.histogram_reader(plan)((1, 1))

    def law():
        return outcomes(lambda bits: text(plan.release(histogram, bits)), 1 << 70, 10_000)

    merged = law()
    monkeypatch.setattr(Listing, "narrow", lambda *_: None)
    apart = law()
    assert len(merged) > 5
    for answer in merged.keys() | apart.keys():
        assert merged.get(answer, 0) / 2**96 == pytest.approx(
            apart.get(answer, 0) / 2**96, abs=1e-7
        )


def text(release):
    return json.dumps(release.to_dict(), default=str)


class Remembering(Look):
    """A look that makes the plan for what was seen once."""

    plans: ClassVar[dict] = {}

    def plan(self, seen: Release, sensitivity, planned, usual):
        key = tuple(zip(seen.labels, seen.counts.tolist(), strict=True)), usual.budget
        if key not in self.plans:
            self.plans[key] = super().plan(seen, sensitivity, planned, usual)
        return self.plans[key]


@pytest.mark.study
@pytest.mark.slow
def test_a_plan_after_a_look_is_one_law(tmp_path):
    """The look leads to plans with different mechanisms; all together are within the total."""
    one = Sensitivity(l0=1)
    planned = partial(plan_topk, 1, sensitivity=one, domain="private", counts="laplace")
    plan = LookedPlan.of(Remembering(1, Budget(20.0, 0.05), 0.6), planned)
    found = attest(plan, World(one, labels=1, largest=1), slack=0.01)
    assert found.holds
    assert len({chosen.text for chosen in Remembering.plans.values()}) > 1
    assert 0.1 < found.points[-2].lower  # the claim is no empty one
    assert not attest(plan, found.world, slack=0.01, claim=Budget(16.0, 0.05)).holds
    found.write(tmp_path / "laws.json")
    assert checked(tmp_path / "laws.json") is None


@pytest.mark.slow
def test_the_command_for_events(tmp_path):
    out = tmp_path / "laws.json"
    question = ["attest", "events", "--epsilon", "6", "--delta", "0.05", "--find", "coins"]
    world = ["--users", "1", "--labels", "2", "--slack", "0.001"]
    answer = CliRunner().invoke(app, [*question, *world, "--counts", "none", "--out", str(out)])
    assert answer.exit_code == 0, answer.output
    assert "4 tables of events" in answer.output
    assert checked(out) is None
    less = ["--counts", "none", "--claim", "DP(6) + delta(0.01)"]
    assert CliRunner().invoke(app, [*question, *world, *less]).exit_code == 1
    assert CliRunner().invoke(app, ["attest", "events"]).exit_code == 2
    stray = ["attest", "KnownLaplace(epsilon=4.0)", "--users", "2"]
    assert CliRunner().invoke(app, stray).exit_code == 2


class StatedLaw:
    def law(self, counts):
        return {len(counts): 1.0}


@pytest.mark.parametrize(
    ("mechanism", "world", "why"),
    [
        (plan_two_phases(1, BUDGET, profile=True), TINY, "too many values"),
        (plan_two_phases(1, BUDGET), World(), "EventsWorld"),
        (CountMLE(noise=KnownLaplace(epsilon=1.0)), World(public=True), "ranking= besides"),
        (
            plan_continual(1, 2, Budget(1.0, 1e-6), sensitivity=Sensitivity(l0=1), labels=2),
            World(public=True),
            "day by day",
        ),
        (PartitionSelection(epsilon=1.0, delta=0.01), EventsWorld(users=5, labels=3), "tables"),
    ],
)
def test_refusals_say_why(mechanism, world, why):
    with pytest.raises(InvalidParameter, match=why):
        attest(mechanism, world)


def test_what_a_world_of_events_cannot_be():
    with pytest.raises(InvalidParameter, match="histograms"):
        attest(StatedLaw(), TINY, claim=Budget(1.0, 0.1))
    with pytest.raises(InvalidParameter, match="l2"):
        EventsWorld(Sensitivity(linf=3, l0=1, l2=3))
    with pytest.raises(InvalidParameter, match="users"):
        EventsWorld(users=0)


@pytest.mark.slow
def test_laws_are_enumerated_in_one_place():
    """``attest``, which ``check_mechanism`` calls, is all that runs a mechanism on a list of its
    choices.
    """
    package = Path(dptopk.__file__).parent
    users = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).endswith("samplers.listing"):
                names = {name.name for name in node.names}
                users |= {path.relative_to(package).as_posix()} if "outcomes" in names else set()
    assert users == {"audit/attestation.py"}
    statements = (package / "testing" / "statement_checks.py").read_text(encoding="utf-8")
    assert "from dptopk.audit.attestation import attest\n" in statements
