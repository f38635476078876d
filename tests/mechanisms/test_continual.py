"""ContinualTopK: what its answers are, and that its state can be kept."""

from __future__ import annotations

import copy
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from dptopk import Budget, Charge, Histogram, InvalidParameter, Sensitivity, compose, plan_continual
from dptopk.mechanisms import ContinualTopK, continual
from dptopk.mechanisms.samplers.factorisation import FACTORISATIONS
from dptopk.mechanisms.stream_day import StreamDay
from dptopk.mechanisms.stream_state import Stream

ONE = Sensitivity(l0=1)
DAYS = [
    {"a": 30, "b": 3},
    {"b": 60},
    {"c": 100, "a": 1},
    {},
    {"d": 500, "c": 1},
    {"a": 200},
    {"b": 9},
]


def day(counts):
    return Histogram(counts, sensitivity=ONE) if counts else Histogram([], [], sensitivity=ONE)


def truth(n, k):
    totals = {}
    for counts in DAYS[:n]:
        for label, count in counts.items():
            totals[label] = totals.get(label, 0) + count
    return sorted(totals.items(), key=lambda row: -row[1])[:k]


@pytest.mark.parametrize("kind", [*FACTORISATIONS])
@pytest.mark.parametrize("private", [True, False])
def test_with_hardly_any_noise_the_answers_are_the_running_top(kind, private):
    """The state goes through JSON after every day."""
    delta = 1e-6 if private else 0.0
    mechanism = ContinualTopK(k=2, days=len(DAYS), sigma=1e-3, delta=delta, factorisation=kind)
    stream = mechanism.stream(ONE, labels=None if private else list("abcd"))
    spent = Charge({})
    for n, counts in enumerate(DAYS, 1):
        histogram = (
            day(counts) if private else Histogram(counts, domain=list("abcd"), sensitivity=ONE)
        )
        answer = stream.release(histogram)
        spent = Charge.join(spent, answer.charge)
        assert list(zip(answer.labels, answer.counts.tolist(), strict=True)) == truth(n, 2)
        stream = Stream.from_dict(json.loads(json.dumps(stream.to_dict())), mechanism, ONE)
    assert spent == stream.charge
    with pytest.raises(InvalidParameter, match="days"):
        stream.release(day({"a": 1}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*FACTORISATIONS])
def test_the_noise_is_as_large_as_it_says(kind):
    """Of 20,000 labels; another sigma by 5% would be seen."""
    labels, sigma = 20_000, 7.0
    mechanism = ContinualTopK(k=labels, days=6, sigma=sigma, factorisation=kind)
    stream = mechanism.stream(ONE, labels=range(labels), rng=np.random.default_rng(5))
    for n in range(1, 7):
        values = stream.release(Histogram(None, np.full(labels, 10), sensitivity=ONE)).counts
        assert np.std(values) == pytest.approx(mechanism.noise_std(ONE, n), rel=0.025)
        assert np.mean(values) == pytest.approx(10 * n, abs=5 * sigma * 3 / labels**0.5)


def test_a_private_label_waits_for_its_threshold():
    mechanism = ContinualTopK(k=5, days=3, sigma=3.0, delta=1e-9)
    stream = mechanism.stream(ONE)
    answer = stream.release(day({"one": 1, "many": 10_000}))
    assert answer.labels == ("many",)
    assert answer.measurement is None
    assert mechanism.threshold(ONE, 1) > 1 + 3.0


@pytest.mark.slow
def test_intervals_cover_in_a_public_domain():
    labels, missed = 200, 0
    mechanism = ContinualTopK(k=20, days=3, sigma=4.0)
    for seed in range(60):
        stream = mechanism.stream(ONE, labels=range(labels), rng=np.random.default_rng(seed))
        for n in range(1, 4):
            answer = stream.release(Histogram(None, np.arange(labels), sensitivity=ONE))
            table = answer.intervals(confidence=0.9)
            true = n * np.array(answer.labels)
            missed += bool(((true < table["low"]) | (true > table["high"])).any())
    assert missed <= 180 * 0.1


@pytest.mark.slow
def test_a_plan_stays_within_its_budget_and_takes_the_best():
    budget = Budget(1.0, 1e-6)
    private = plan_continual(5, 8, budget, sensitivity=Sensitivity(l0=3))
    assert private.delta == 5e-7
    assert 0.99 < compose(private.charge(Sensitivity(l0=3)), delta=1e-6).epsilon <= 1.0
    best = plan_continual(5, 8, budget, sensitivity=ONE, labels=100)
    assert best.factorisation == "optimal"
    tree = plan_continual(5, 8, budget, sensitivity=ONE, labels=100, factorisation="tree")
    assert tree.noise_std(ONE) > 1.3 * best.noise_std(ONE)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"days": 0}, "days"),
        ({"days": 5000}, "days"),
        ({"sigma": float("nan")}, "sigma"),
        ({"k": 0}, "k"),
        ({"delta": 1.5}, "delta"),
        ({"factorisation": "cube_root"}, "factorisation"),
    ],
)
def test_bad_parameters_are_named(change, word):
    with pytest.raises(InvalidParameter, match=word):
        ContinualTopK(**{"k": 1, "days": 3, "sigma": 1.0} | change)


def test_what_does_not_fit_is_refused_and_changes_nothing():
    public, private = (
        ContinualTopK(k=1, days=3, sigma=1.0),
        ContinualTopK(k=1, days=3, sigma=1.0, delta=1e-6),
    )
    with pytest.raises(InvalidParameter, match="delta"):
        public.stream(ONE)
    with pytest.raises(InvalidParameter, match="delta"):
        private.stream(ONE, labels=["a"])
    with pytest.raises(InvalidParameter, match="l0"):
        private.stream(Sensitivity())
    with pytest.raises(InvalidParameter, match="repeated"):
        public.stream(ONE, labels=["a", "a"])
    with pytest.raises(InvalidParameter, match="sigma"):
        ContinualTopK(k=1, days=3, sigma=1e15).charge(ONE)
    stream = public.stream(ONE, labels=["a", "b"])
    for wrong in (
        Histogram(["a"], [1], sensitivity=Sensitivity(linf=2, l0=1), domain="public"),
        Histogram(["a"], [1], sensitivity=ONE, domain="public", complete=False),
        Histogram(["z"], [1], sensitivity=ONE, domain="public"),
        Histogram(["a"], [1], sensitivity=ONE),
    ):
        with pytest.raises(InvalidParameter):
            stream.release(wrong)
    assert stream.day == 0
    assert stream.to_dict()["days"] == stream.to_dict()["measured"] == []
    stream.release(Histogram(["a"], [1], domain=["a", "b"], sensitivity=ONE))
    for state in (
        {},
        {**stream.to_dict(), "day": 9},
        {**stream.to_dict(), "names": ["a"]},
        {**stream.to_dict(), "measured": [[1, 2], [3, 4]]},
        {**stream.to_dict(), "strategy": "of another machine"},
    ):
        with pytest.raises(InvalidParameter, match="state"):
            Stream.from_dict(state, public, ONE)


class Sku(str):
    """A type of a caller's own: equal texts of it and of ``str`` are two labels."""

    __slots__ = ()


def test_a_state_without_labels_is_a_state():
    """Before the first day, and after days on which nobody came."""
    mechanism, none = (
        ContinualTopK(k=1, days=3, sigma=1.0, delta=1e-6),
        Histogram({}, sensitivity=ONE),
    )
    stream = mechanism.stream(ONE)
    for _ in range(2):
        stream = Stream.from_dict(json.loads(json.dumps(stream.to_dict())), mechanism, ONE)
        assert len(stream.release(none)) == 0
        none = Histogram({}, sensitivity=ONE)
    stream = Stream.from_dict(json.loads(json.dumps(stream.to_dict())), mechanism, ONE)
    assert stream.release(Histogram({"tea": 90}, sensitivity=ONE)).labels == ("tea",)


def test_a_state_keeps_labels_as_they_are_or_not_at_all():
    mechanism = ContinualTopK(k=1, days=3, sigma=1.0)
    kept = [("a", 1), "a", Fraction(1, 3)]
    stream = mechanism.stream(ONE, labels=kept)
    assert Stream.from_dict(json.loads(json.dumps(stream.to_dict())), mechanism, ONE).names == kept
    for label in (Sku("a"), ("a", Sku("b"))):
        with pytest.raises(InvalidParameter, match="type of your own"):
            mechanism.stream(ONE, labels=["a", label]).to_dict()
    twice = stream.to_dict() | {"names": ["a", "a", "b"]}
    with pytest.raises(InvalidParameter, match="state"):
        Stream.from_dict(twice, mechanism, ONE)


@pytest.mark.parametrize("labels", [0, -1, 2.0, True])
def test_a_public_domain_has_labels(labels):
    with pytest.raises(InvalidParameter, match="labels"):
        plan_continual(5, 7, Budget(1, 1e-6), sensitivity=ONE, labels=labels)


@pytest.mark.parametrize("other", [{"sigma": 0.1}, {"factorisation": "daily"}, {"k": 2}])
def test_a_state_is_gone_on_from_by_what_made_it_alone(other):
    """Less noise on the days to come than was charged, or measurements of another factorisation of
    the same shape.
    """
    made = {"k": 1, "days": 3, "sigma": 1.0}
    state = ContinualTopK(**made).stream(ONE, labels=["a"]).to_dict()
    with pytest.raises(InvalidParameter, match="state"):
        Stream.from_dict(state, ContinualTopK(**made | other), ONE)
    with pytest.raises(InvalidParameter, match="state"):
        Stream.from_dict(state, ContinualTopK(**made), Sensitivity(linf=2, l0=1))


def test_a_state_goes_on_with_its_own_measurements_when_the_solver_finds_others(monkeypatch):
    """As after an upgrade: the sums of later days are those that were charged, checked by hand, and
    no solver runs.
    """
    made = {"k": 4, "days": 5, "sigma": 1e-3, "delta": 1e-6, "factorisation": "optimal"}
    mechanism = ContinualTopK(**made)
    weights = mechanism.measurements.strategy
    assert (weights == np.tril(weights)).all()
    stream = mechanism.stream(ONE, rng=np.random.default_rng(1))
    stream.release(day(DAYS[0]))
    state = json.loads(json.dumps(stream.to_dict()))
    square_root = continual.factorise("square_root", mechanism.participation, "max")
    monkeypatch.setattr(continual, "factorise", lambda *_: square_root)
    former = {name: value for name, value in state.items() if name != "weights"}
    with pytest.raises(InvalidParameter, match="factorises it otherwise"):
        Stream.from_dict(former, ContinualTopK(**made), ONE)
    changed = json.loads(json.dumps(state))
    changed["weights"][4][0] -= 1
    larger = state | {"weights": (2 * weights).tolist()}
    no_rows = state | {"days": [[0, state["days"][0][1]]]}
    for wrong in (changed, larger, state | {"weights": [[1]]}, state | {"unit": 1}, no_rows):
        with pytest.raises(InvalidParameter, match="state"):
            Stream.from_dict(wrong, ContinualTopK(**made), ONE)
    again = Stream.from_dict(state, ContinualTopK(**made), ONE, np.random.default_rng(2))
    answers = [again.release(day(counts)) for counts in DAYS[1:5]]
    assert dict(zip(answers[-1].labels, answers[-1].counts.tolist(), strict=True)) == dict(
        truth(5, 4)
    )
    noisy = np.array(again.to_dict()["measured"])[:, again.names.index("b")]
    exact = weights @ [counts.get("b", 0) for counts in DAYS[:5]]
    assert np.abs(noisy - exact).max() <= 8 * 1e-3 * mechanism.measurements.unit + 1
    assert Stream.from_dict(again.to_dict(), mechanism, ONE).day == 5


@pytest.mark.parametrize("factorisation", ["optimal", "square_root", "daily"])
def test_a_state_of_another_unit_or_of_a_fixed_factorisation_has_no_measurements_of_its_own(
    factorisation,
):
    """Noise of a smaller scale is less Gaussian: at sigma = 0.3 and a unit of 1 it costs μ = 5.3,
    the stream 3.3.
    """
    mechanism = ContinualTopK(k=1, days=4, sigma=0.3, factorisation=factorisation)
    state = mechanism.stream(ONE, labels=["a"]).to_dict()
    for unit, weight in ((1, 1), (10**400, 1), (state["unit"], state["unit"])):
        weights = weight * np.eye(4, dtype=np.int64)
        digest = hashlib.sha256(weights.tobytes()).hexdigest()
        made = state | {"unit": unit, "weights": weights.tolist(), "strategy": digest}
        if (factorisation, unit) == ("optimal", state["unit"]):
            assert Stream.from_dict(made, mechanism, ONE).charge == ContinualTopK(
                k=1, days=4, sigma=0.3
            ).charge(ONE)
            continue
        with pytest.raises(InvalidParameter, match="state"):
            Stream.from_dict(made, mechanism, ONE)


def test_a_state_of_before_the_measurements_were_written_is_read():
    mechanism = ContinualTopK(k=1, days=4, sigma=1.0, factorisation="optimal")
    state = mechanism.stream(ONE, labels=["a"]).to_dict()
    del state["weights"], state["unit"]
    again = Stream.from_dict(state, mechanism, ONE).to_dict()
    assert again["weights"] == mechanism.measurements.strategy.tolist()


def test_a_day_that_fails_counts_once_when_it_is_asked_for_again(monkeypatch):
    """A user-day that were added twice would move every later sum twice as far as is charged."""
    stream = ContinualTopK(k=2, days=2, sigma=1e-3, delta=1e-6, factorisation="daily").stream(ONE)
    for step in ("_weighted_sum", "_measurement_noise", "_answer_of_day"):
        with monkeypatch.context() as patch:

            def interrupted(*_):
                raise KeyboardInterrupt

            patch.setattr(Stream, step, interrupted)
            with pytest.raises(KeyboardInterrupt):
                stream.release(day({"a": 30}))
        assert (stream.day, stream.names, stream._places) == (0, [], {})
    assert stream.release(day({"a": 30})).counts.tolist() == [30]
    assert stream.release(day({"a": 1})).counts.tolist() == [31]


def test_a_day_is_answered_once_for_several_threads():
    stream = ContinualTopK(k=1, days=40, sigma=1e-3).stream(ONE, labels=range(2000))
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda _: stream.release(Histogram([3], [1], domain=range(2000), sensitivity=ONE)),
                range(40),
            )
        )
    assert sorted(int(answer.counts[0]) for answer in answers) == list(range(1, 41))
    with pytest.raises(TypeError):
        copy.deepcopy(stream)  # it would answer the days again


def test_a_total_depends_on_its_own_measurements_alone():
    """To the last bit, whichever labels else have come: next to a half, the last bit is what is
    shown.
    """
    rng = np.random.default_rng(0)
    stream = ContinualTopK(k=1, days=40, sigma=1.0, delta=1e-6).stream(ONE)
    stream.day, measured = 35, rng.integers(-(10**6), 10**6, (40, 30))

    def totals(rows):
        days = ({n: measured[n, rows]} for n in range(35))
        none = np.array([], dtype=np.int64)
        stream._days = [StreamDay.of("", [], none, none, numbers) for numbers in days]
        stream.names = list(rows)
        return stream._totals()

    everyone = totals(range(30))
    for hidden in range(30):
        others = [row for row in range(30) if row != hidden]
        np.testing.assert_array_equal(totals(others), everyone[others])


def test_too_many_days_are_refused_before_their_matrices_are_made():
    with pytest.raises(InvalidParameter, match="days"):
        plan_continual(1, 10**6, Budget(1.0, 1e-6), sensitivity=ONE)


def test_labels_of_two_days_that_nothing_orders_are_refused_and_the_day_can_be_asked_again():
    """Each day's histogram alone is fine; together their order would be that in which they came."""
    one, other = (type("Own", (), {"__str__": lambda _: "own"})() for _ in range(2))
    stream = ContinualTopK(k=2, days=2, sigma=1.0, delta=1e-3).stream(
        ONE, rng=np.random.default_rng(0)
    )
    stream.release(Histogram({one: 5}, sensitivity=ONE))
    with pytest.raises(InvalidParameter, match="cannot be ordered"):
        stream.release(Histogram({other: 5}, sensitivity=ONE))
    assert (stream.day, stream.names) == (1, [one])
    assert stream.release(Histogram({"text": 5}, sensitivity=ONE)).note.startswith("day 2")


def test_a_days_histogram_enters_once():
    """Given again, in this process or by a state that was read back, one user-day would be moved
    twice.
    """
    mechanism, first = (
        ContinualTopK(k=2, days=3, sigma=1.0),
        Histogram({"a": 5}, domain=["a"], sensitivity=ONE),
    )
    stream = mechanism.stream(ONE, labels=["a"], rng=np.random.default_rng(0))
    stream.release(first)
    again = Stream.from_dict(
        json.loads(json.dumps(stream.to_dict())), mechanism, ONE, np.random.default_rng(0)
    )
    for kept in (stream, again):
        with pytest.raises(
            InvalidParameter, match="histogram: this one was given as an earlier day"
        ):
            kept.release(first)
        assert kept.release(Histogram({"a": 5}, domain=["a"], sensitivity=ONE)).note.startswith(
            "day 2"
        )


@pytest.mark.parametrize("kind", [*FACTORISATIONS])
def test_measurements_are_those_of_the_strategy(kind, monkeypatch):
    """Labels that come late, and a state that is read again on every day: W x for every label,
    where noise is 0.
    """
    monkeypatch.setattr(
        Stream, "_measurement_noise", lambda _, size: np.zeros(size, dtype=np.int64)
    )
    mechanism = ContinualTopK(k=2, days=len(DAYS), sigma=1e-3, delta=1e-6, factorisation=kind)
    stream, counts = mechanism.stream(ONE), np.zeros((len(DAYS), 4), dtype=np.int64)
    for n, new in enumerate(DAYS):
        stream.release(day(new))
        stream = Stream.from_dict(json.loads(json.dumps(stream.to_dict())), mechanism, ONE)
        for label, count in new.items():
            counts[n, stream.names.index(label)] = count
    np.testing.assert_array_equal(
        stream.to_dict()["measured"], mechanism.measurements.strategy @ counts
    )


def test_a_day_looks_at_touched_labels_alone():
    """Of a large public domain: what is added up is as many numbers as came, whatever the domain
    has.
    """
    stream = ContinualTopK(k=1, days=3, sigma=1.0).stream(ONE, labels=range(5000))
    for _ in range(3):
        stream.release(Histogram([7, 9], [1, 2], domain=range(5000), sensitivity=ONE))
    assert [len(day.counts) for day in stream._days] == [2, 2, 2]


def test_counts_near_the_end_of_64_bits_enter_cut():
    stream = ContinualTopK(k=1, days=3, sigma=1.0).stream(ONE, labels=["a"])
    for _ in range(3):
        answer = stream.release(Histogram({"a": 2**61}, domain=["a"], sensitivity=ONE))
    assert 2**48 < answer.counts[0] < 2**62


def test_noise_too_far_from_normal_noise_gives_no_intervals(monkeypatch):
    stream = ContinualTopK(k=1, days=1, sigma=1.0).stream(ONE, labels=["a"])
    monkeypatch.setattr(
        ContinualTopK, "total_noise", lambda *_: continual.TotalNoise(np.ones(1), np.ones(1))
    )
    assert stream.release(Histogram({"a": 3}, domain=["a"], sensitivity=ONE)).measurement is None
