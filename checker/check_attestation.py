"""Check an attestation of dptopk: python check_attestation.py FILE. Needs nothing but Python; nothing of dptopk.

The file lists, for each histogram over a few labels with counts among a few levels, the answers of a mechanism with lower
bounds of their probabilities, whole numbers of 2^-bits. Instead of histograms there may be tables of events: how many rows
each of a few users has with each label, user by user; neighbours differ by all rows of one user, who has none in one of
them. Checked, in whole numbers and fractions:
  1. every histogram is listed once, its masses are at least 0 and sum to at most 1; what they lack to 1 is its rest;
  2. for all neighbours (one user moves at most l0 counts, each by at most linf, all up or all down), in both orders, and
     each listed epsilon (of weights, l2: a user of d labels adds isqrt(l2^2 / d) to each of them): sup over events S of P(S) - e^epsilon Q(S) <= sum of max(p - e^epsilon q, 0) + the rest of P
     is at most the listed upper end, and that at most the claimed delta + slack.
Not checked: that the laws are those of the code (run it: the same file must come out), and that the claimed deltas are
what the claimed charge amounts to (`dptopk certify`, check_certificate.py)."""

import itertools
import json
import math
import sys
from fractions import Fraction


def need(truth, what):  # an assert would be gone under python -O
    if not truth:
        sys.exit(f"refused: {what}")


def exp_below(x):
    """A rational that is at most e^x, for a rational x >= 0: (partial sum of the series at x/n)^n."""
    n = int(x) + 1
    term = total = Fraction(1)
    for i in range(1, 40):
        term = term * x / n / i
        term = Fraction(int(term * 2**200), 2**200)
        total += term
    power = Fraction(1)
    for _ in range(n):
        power = Fraction(int(power * total * 2**200), 2**200)
    return power


def neighbours(counts, histograms, linf, l0, l1, l2):
    """The histograms with one more user; with l2 a user of d labels adds isqrt(l2^2 / d) to each."""
    for other in histograms:
        if l2 is not None:
            steps = [b - a for a, b in zip(counts, other)]
            touched = sum(map(bool, steps))
            if 0 < touched <= l0 and set(steps) <= {0, math.isqrt(l2 * l2 // touched)}:
                yield other
            continue
        steps = [b - a for a, b in zip(counts, other)]
        if any(steps) and all(0 <= step <= linf for step in steps) and sum(map(bool, steps)) <= l0:
            if sum(steps) <= l1:
                yield other


def with_one_more_user(table, tables, users, labels):
    """The tables with the rows of one more user."""
    for other in tables:
        own = [slice(user * labels, (user + 1) * labels) for user in range(users)]
        changed = [rows for rows in own if table[rows] != other[rows]]
        if len(changed) == 1 and not any(table[changed[0]]):
            yield other


def laws_of(file):
    one = 1 << file["bits"]
    cells = file["labels"] * file.get("users", 1)
    listed = set(itertools.product(file["levels"], repeat=cells))
    need(
        all(type(level) is int and level >= 0 for level in file["levels"]), "levels must be counts"
    )
    need(len(file["laws"]) == len(listed), "a histogram is missing, or listed twice")
    need(len(set(file["answers"])) == len(file["answers"]), "an answer is listed twice")
    laws = {}
    for law in file["laws"]:
        masses = {int(answer): int(mass, 16) for answer, mass in law["masses"].items()}
        need(
            all(0 <= answer < len(file["answers"]) for answer in masses),
            "an answer that is not listed",
        )
        need(len(masses) == len(law["masses"]), "an answer twice in a law")
        need(
            all(mass >= 0 for mass in masses.values()) and sum(masses.values()) <= one,
            "masses that are no law",
        )
        laws[tuple(law["counts"])] = masses
    need(laws.keys() == listed, "the histograms are not all those of the stated size")
    return laws, one


def main(path):
    with open(path, encoding="ascii") as opened:
        file = json.load(opened)
    of_events = "users" in file
    need(file["format"] == f"dptopk attestation {2 if of_events else 1}", "another format")
    laws, one = laws_of(file)
    rests = {counts: one - sum(law.values()) for counts, law in laws.items()}
    if of_events:
        users, labels = file["users"], file["labels"]
        need(users >= 1 and labels >= 1, "no neighbours")
        pairs = [(a, b) for a in laws for b in with_one_more_user(a, laws, users, labels)]
        looked = f"{len(laws)} tables of events, {len(pairs)} pairs of neighbours ({users} users, {labels} labels)"
    else:
        l0 = file["labels"] if file["l0"] is None else file["l0"]
        l1 = file.get("l1", l0 * file["linf"])
        l2 = file.get("l2")
        need(file["linf"] >= 1 and l0 >= 1 and l1 >= 1 and (l2 is None or l2 >= 1), "no neighbours")
        pairs = [(a, b) for a in laws for b in neighbours(a, laws, file["linf"], l0, l1, l2)]
        caps = f"linf {file['linf']}, l0 {l0}, l1 {l1}{'' if l2 is None else f', weights {l2}'}"
        looked = f"{len(laws)} histograms, {len(pairs)} pairs of neighbours ({caps})"
    need(pairs and file["points"], "nothing to compare")
    slack = Fraction(file["slack"])
    for epsilon, claimed, _, upper in file["points"]:
        need(epsilon >= 0 and 0 <= claimed <= 1, "a point outside its range")
        growth, worst = exp_below(Fraction(epsilon)), Fraction(0)
        up, down = growth.numerator, growth.denominator
        for P, Q in itertools.chain(pairs, ((b, a) for a, b in pairs)):
            q = laws[Q]
            gain = sum(
                max(mass * down - up * q.get(answer, 0), 0) for answer, mass in laws[P].items()
            )
            worst = max(worst, Fraction(gain, down * one) + Fraction(rests[P], one))
        need(
            worst <= Fraction(upper) + Fraction(1, 1 << 90),
            f"at epsilon {epsilon} delta is only bounded by {float(worst)}",
        )
        need(
            Fraction(upper) <= Fraction(claimed) + slack,
            f"at epsilon {epsilon} delta may be {upper}, claimed {claimed}",
        )
    print(f"valid: {file['mechanism']}, {looked}")
    print(
        f"delta at most the claimed one + {file['slack']:.2g} at epsilon",
        ", ".join(f"{e:g}" for e, *_ in file["points"]),
    )


if __name__ == "__main__":
    main(sys.argv[1])
