"""Releases that earlier commits stored are read, and say what they said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dptopk import Histogram, InvalidParameter, Release, Sensitivity
from dptopk.mechanisms import Centred, KnownGaussian, KnownLaplace, TruncatedLaplace, UnknownBox
from dptopk.release.noise_laws import BoxNoise, GaussianNoise, LaplaceNoise, law_of

STORED = json.loads((Path(__file__).parent / "data" / "stored_releases.json").read_text())
ENDS = ("low", "high", "rank_low", "rank_high")


@pytest.mark.parametrize(
    "stored", STORED, ids=lambda stored: stored["release"]["mechanism"]["name"]
)
def test_an_answer_of_an_earlier_commit_has_its_rows_and_intervals(stored):
    answer = Release.from_dict(stored["release"])
    again = Release.from_dict(json.loads(json.dumps(answer.to_dict())))
    assert again.to_dict() == answer.to_dict()
    for name in ("rows", "charge", "note", "seeded", "capped", "sensitivity", "mechanism"):
        assert answer.to_dict()[name] == stored["release"][name]
    for kind, of_kind in (stored["intervals"] or {}).items():
        for confidence, ends in of_kind.items():
            found = answer.intervals(kind=kind, confidence=float(confidence))
            now = {name: found[name].tolist() for name in ENDS}
            then = dict(zip(ENDS, ends, strict=True))
            if kind == "fcr" and stored["release"]["measurement"]["common"]:
                # The sum of two noises is bounded more tightly since.
                assert all(np.greater_equal(now["low"], then["low"]))
                assert all(np.less_equal(now["high"], then["high"]))
                now |= {name: then[name] for name in ("low", "high")}
            assert now == then


def test_all_families_of_noise_are_among_them():
    kinds = {
        one["release"]["measurement"]["noise"]["kind"]
        for one in STORED
        if one["release"]["measurement"]
    }
    assert kinds == {"laplace", "gaussian", "normal", "box"}


MECHANISMS = [
    KnownLaplace(epsilon=0.3),
    TruncatedLaplace(epsilon=0.7, delta=1e-5),
    Centred(noise=KnownGaussian(sigma=7.0)),
    UnknownBox(d_bar=5, epsilon=2.0, delta=1e-3),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: type(one).__name__)
def test_a_statement_of_noise_goes_through_json(mechanism):
    domain = "public" if mechanism.appears_at(Sensitivity(linf=3, l0=2)) is None else "private"
    histogram = Histogram(
        {"a": 900, "b": 500}, sensitivity=Sensitivity(linf=3, l0=2), domain=domain
    )
    answer = mechanism.release(histogram, np.random.default_rng(2))
    again = Release.from_dict(json.loads(json.dumps(answer.to_dict())))
    assert again.measurement == answer.measurement


def test_laws_by_name():
    for law in (LaplaceNoise(3.0, bound=9), GaussianNoise(2.0), BoxNoise(4.0, 3, 2)):
        assert law_of(json.loads(json.dumps(law.to_dict()))) == law
    with pytest.raises(InvalidParameter, match="kind"):
        law_of({"kind": "cauchy", "scale": 1.0})
