"""A mechanism of someone else's, registered by one line, goes wherever ours go; nothing takes it
for another one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dptopk import (
    Budget,
    Charge,
    Client,
    Histogram,
    InvalidParameter,
    Ledger,
    PureDP,
    Release,
    Sensitivity,
    Session,
    plan_topk,
)
from dptopk.audit import World, audit, from_mechanism
from dptopk.mechanisms import named
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS
from dptopk.planning.designs import Design
from dptopk.planning.shape import Shape

ONE = Sensitivity(l0=1)
COUNTS = np.array([90, 70, 50, 40, 30, 22, 20, 18, 16, 14, 12, 10, *[5] * 20])


@dataclass(frozen=True, kw_only=True)
class StableHistogram(Mechanism):
    """Present counts with two-sided geometric noise, released above a threshold (Korolova et al.
    2009); linf = 1.
    """

    epsilon: float
    delta: float

    def charge(self, sensitivity, *, labels=None):
        return Charge({PureDP(self.epsilon): sensitivity.l0}, delta=self.delta)

    def check(self, histogram):
        if not histogram.complete or histogram.sensitivity.linf > 1:
            raise InvalidParameter("histogram: StableHistogram needs all of it, and linf = 1")

    def release(self, histogram, rng=None):
        self.check(histogram)
        present = np.flatnonzero(histogram.counts)
        values = histogram.counts[present] + self._noise(
            rng or np.random.default_rng(), len(present)
        )
        order = np.argsort(-values, kind="stable")
        rows = order[values[order] > self.threshold_offset(histogram.sensitivity)]
        labels = tuple(histogram.labels[present[rows]].tolist())
        charge = self.charge(histogram.sensitivity)
        return Release.of_draw(
            histogram, rng, labels=labels, counts=values[rows], charge=charge, mechanism=self
        )

    def _noise(self, rng, size):
        first, second = rng.geometric(-math.expm1(-self.epsilon), (2, *np.atleast_1d(size)))
        return first - second

    def threshold_offset(self, sensitivity):
        q = math.exp(-self.epsilon)
        return 1 + math.ceil(math.log(self.delta / sensitivity.l0 * (1 + q), q))

    def simulate(self, scene):
        def draw(number):
            noisy = scene.counts + self._noise(
                np.random.default_rng([99, number]), (BLOCK_DRAWS, len(scene.counts))
            )
            values = np.where(
                (noisy > self.threshold_offset(scene.sensitivity)) & (scene.counts > 0),
                noisy,
                -np.inf,
            )
            chosen = np.argsort(-values, axis=1)[:, : scene.k]
            values = np.take_along_axis(values, chosen, axis=1)
            return np.where(np.isfinite(values), chosen, -1), values

        return draw

    def selection_noise(self, sensitivity):
        return self.count_noise(sensitivity)

    def count_noise(self, sensitivity, *, labels=None):
        return math.sqrt(2 * math.exp(-self.epsilon)) / -math.expm1(-self.epsilon)

    def appears_at(self, sensitivity, *, probability=0.95):
        tail = max(math.log(1 - max(probability, 0.5)) / -self.epsilon, 0)
        return self.threshold_offset(sensitivity) + 1 + math.ceil(tail)


DESIGN = Design(
    "stable histogram", "threshold", "laplace", "private",
    lambda request, split, rho: (
        StableHistogram(epsilon=math.sqrt(2 * rho / request.sensitivity.l0), delta=split.threshold * request.delta),
    ),
    whole=True,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(named, "_KINDS", dict(named._KINDS))
    others = list(named.OTHER_DESIGNS)
    named.register(StableHistogram, DESIGN)
    yield
    named.OTHER_DESIGNS[:] = others


def _histogram(sensitivity=ONE):
    return Histogram([f"w{rank}" for rank in range(len(COUNTS))], COUNTS, sensitivity=sensitivity)


def test_it_is_planned_and_simulated_by_its_own_law():
    plan = plan_topk(8, Budget(0.5, 1e-3), sensitivity=ONE, like=COUNTS, method="stable histogram")
    assert isinstance(plan.mechanisms[0], StableHistogram)
    assert plan.epsilon == pytest.approx(0.5, rel=1e-3)
    releases = [plan.release(_histogram(), np.random.default_rng(seed)) for seed in range(200)]
    assert plan.outcome.rows == pytest.approx(
        np.mean([len(release) for release in releases]), abs=0.2
    )
    squares = [(r.counts - COUNTS[[int(label[1:]) for label in r.labels]]) ** 2 for r in releases]
    assert plan.outcome.error == pytest.approx(math.sqrt(np.concatenate(squares).mean()), rel=0.1)
    less = replace(plan.mechanisms[0], epsilon=0.25)  # the law of another one is not that
    assert Shape.of(COUNTS).outcome((less,), 8, ONE, True).error > 1.5 * plan.outcome.error
    assert "stable histogram" in set(
        plan_topk(8, Budget(0.5, 1e-3), sensitivity=ONE).alternatives["design"]
    )
    assert f"threshold: {plan.threshold}" in plan.explain()


def test_what_it_does_not_say_is_asked_for():
    @dataclass(frozen=True)
    class Half(Mechanism):
        def charge(self, sensitivity, *, labels=None):
            return Charge()

    with pytest.raises(TypeError, match="simulate"):
        Half()
    with pytest.raises(InvalidParameter, match="another mechanism has the name"):
        named.register(type("KnownLaplace", (StableHistogram,), {}))
    with pytest.raises(InvalidParameter, match="kind must be"):
        named.register(DESIGN)


def test_it_is_charged_stored_and_reused(tmp_path):
    ledger, mechanism = Ledger(tmp_path / "ledger.db"), StableHistogram(epsilon=0.5, delta=1e-3)
    ledger.create_dataset("d", budget=Budget(1, 1e-2), sensitivity=ONE)
    session = Session(_histogram(), ledger=ledger, dataset="d", analyst="ann")
    release = session.run(mechanism)
    again = session.run(mechanism, reuse=True)
    assert ledger.spent("d") == mechanism.charge(ONE)
    assert (again.labels, again.mechanism, bool(again.charge)) == (release.labels, mechanism, False)
    assert Release.from_dict(release.to_dict()).to_dict() == release.to_dict()


def test_it_is_served(server):
    client = Client(server.url, server.tokens["ann"], dataset="words")
    mechanism = StableHistogram(epsilon=0.5, delta=1e-7)
    release = client.run(mechanism, where={"part": "two"})
    assert release.charge == mechanism.charge(ONE)
    assert len(release) == 4
    once = {"Idempotency-Key": "one-of-its-own"}
    body = {"mechanism": {"name": "StableHistogram", "epsilon": 0.5, "delta": 1e-7, "sigma": 1}}
    answer = server.client("ann").post("/v1/datasets/words/run", json=body, headers=once)
    assert "StableHistogram takes delta, epsilon" in answer.text


@pytest.mark.slow
def test_it_is_audited():
    mechanism = StableHistogram(epsilon=3.0, delta=0.05)
    made, limits = (
        from_mechanism(mechanism, ONE),
        {"world": World(sensitivity=ONE), "seconds": 60.0},
    )
    assert not audit(
        made, mechanism.charge(ONE), draws=1_000, **limits, rng=np.random.default_rng(1)
    ).finding
    assert audit(
        made, Charge({PureDP(0.1): 1}), draws=12_000, **limits, rng=np.random.default_rng(1)
    ).finding
