"""Check an attestation of dptopk: python check_attestation.py FILE. Needs nothing but Python; nothing of dptopk.

The file lists, for each histogram over a few labels with counts among a few levels, the answers of a mechanism with lower
bounds of their probabilities, whole numbers of 2^-bits. Instead of histograms there may be tables of events: how many rows
each of a few users has with each label, user by user; neighbours differ by all rows of one user, who has none in one of
them. Checked, in whole numbers and fractions:
  1. every histogram is listed once, its masses are at least 0 and sum to at most 1; what they lack to 1 is its rest;
  2. for all neighbours (one user moves at most l0 counts, each by at most linf, all up or all down; of weights, l2, a user
     of d labels adds isqrt(l2^2 / d) to each of them), in both orders, and each listed epsilon: sup over events S of
     P(S) - e^epsilon Q(S) <= sum of max(p - e^epsilon q, 0) + the rest of P is at most the listed upper end, and that at
     most the claimed delta + slack.
Not checked: users who add less than these weights; that the laws are those of the code (run it: the same file must come out), and that the claimed deltas are
what the claimed charge amounts to (`dptopk certify`, check_certificate.py)."""

import itertools
import json
import math
import sys
from fractions import Fraction


def need(truth, what):
    """Refuse the file with a sentence unless ``truth``; an assert would be gone under python -O."""
    if not truth:
        sys.exit(f"refused: {what}")


def exp_below(x):
    """Return a rational that is at most e^x, for a rational x >= 0.

    It is the n-th power of 40 terms of the series at x/n < 1, cut to 200 binary places downwards.
    """
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


def neighbours(counts, histograms, limits):
    """Yield the histograms that one more user may make of the given one.

    Args:
        counts: the histogram, a count per label.
        histograms: all histograms of the file.
        limits: of one user: "linf" rows of a label, "l0" labels, "l1" rows; with "l2", not None,
            a user of d labels adds isqrt(l2^2 / d) to each of them instead.
    """
    for larger in histograms:
        steps = [after - before for before, after in zip(counts, larger)]
        labels = sum(step != 0 for step in steps)
        if labels == 0 or labels > limits["l0"]:
            continue
        if limits["l2"] is not None:
            weight = math.isqrt(limits["l2"] ** 2 // labels)
            possible = set(steps) <= {0, weight}
        else:
            in_range = all(0 <= step <= limits["linf"] for step in steps)
            possible = in_range and sum(steps) <= limits["l1"]
        if possible:
            yield larger


def with_one_more_user(table, tables, users, labels):
    """Yield the tables that differ from the given one by all rows of a user who has none in it.

    Args:
        table: the rows of each user with each label, user by user.
        tables: all tables of the file.
        users: how many users a table has.
        labels: how many labels.
    """
    of_users = [slice(user * labels, (user + 1) * labels) for user in range(users)]
    for other in tables:
        changed = [rows for rows in of_users if table[rows] != other[rows]]
        if len(changed) == 1 and not any(table[changed[0]]):
            yield other


def laws_of(file):
    """Return the laws of a file and the integer that stands for probability 1, after check 1.

    A law is a dictionary of answers (places in the file's list) with integer lower bounds of their
    probabilities; the laws are under their histograms or tables.
    """
    unit = 1 << file["bits"]
    cells = file["labels"] * file.get("users", 1)
    listed = set(itertools.product(file["levels"], repeat=cells))
    whole = all(type(level) is int and level >= 0 for level in file["levels"])
    need(whole, "levels must be counts")
    need(len(file["laws"]) == len(listed), "a histogram is missing, or listed twice")
    answers = file["answers"]
    need(len(set(answers)) == len(answers), "an answer is listed twice")
    laws = {}
    for law in file["laws"]:
        masses = {int(answer): int(mass, 16) for answer, mass in law["masses"].items()}
        known = all(0 <= answer < len(answers) for answer in masses)
        need(known, "an answer that is not listed")
        need(len(masses) == len(law["masses"]), "an answer twice in a law")
        is_law = all(mass >= 0 for mass in masses.values()) and sum(masses.values()) <= unit
        need(is_law, "masses that are no law")
        laws[tuple(law["counts"])] = masses
    need(laws.keys() == listed, "the histograms are not all those of the stated size")
    return laws, unit


def pairs_of_tables(file, tables):
    """Return all pairs of a table and one with one more user, and the words for them."""
    users = file["users"]
    labels = file["labels"]
    need(users >= 1 and labels >= 1, "no neighbours")
    pairs = [(a, b) for a in tables for b in with_one_more_user(a, tables, users, labels)]
    counted = f"{len(tables)} tables of events, {len(pairs)} pairs of neighbours"
    return pairs, f"{counted} ({users} users, {labels} labels)"


def pairs_of_histograms(file, histograms):
    """Return all pairs of a histogram and one with one more user, and the words for them."""
    linf = file["linf"]
    l0 = file["labels"] if file["l0"] is None else file["l0"]
    l1 = file.get("l1", l0 * linf)
    l2 = file.get("l2")
    need(linf >= 1 and l0 >= 1 and l1 >= 1, "no neighbours")
    need(l2 is None or l2 >= 1, "no neighbours")
    limits = {"linf": linf, "l0": l0, "l1": l1, "l2": l2}
    pairs = [(a, b) for a in histograms for b in neighbours(a, histograms, limits)]
    words = f"linf {linf}, l0 {l0}, l1 {l1}"
    if l2 is not None:
        words += f", weights {l2}"
    return pairs, f"{len(histograms)} histograms, {len(pairs)} pairs of neighbours ({words})"


def delta_bound(p, q, growth, unit):
    """Return an upper bound on P(S) - e^epsilon Q(S) over all events S.

    Args:
        p, q: the listed integer masses of P and of Q; what those of P lack to 1 counts in full.
        growth: a rational that is at most e^epsilon.
        unit: the integer that stands for probability 1.
    """
    up = growth.numerator
    down = growth.denominator
    gain = sum(max(mass * down - up * q.get(answer, 0), 0) for answer, mass in p.items())
    unlisted = unit - sum(p.values())
    return Fraction(gain, down * unit) + Fraction(unlisted, unit)


def main(path):
    """Check a file, print what it proves, or exit with the reason why it is refused."""
    with open(path, encoding="ascii") as opened:
        file = json.load(opened)
    of_events = "users" in file
    need(file["format"] == f"dptopk attestation {2 if of_events else 1}", "another format")
    laws, unit = laws_of(file)
    pairs_of = pairs_of_tables if of_events else pairs_of_histograms
    pairs, looked_at = pairs_of(file, laws)
    need(pairs and file["points"], "nothing to compare")
    both_orders = pairs + [(b, a) for a, b in pairs]
    slack = Fraction(file["slack"])
    # The powers of e here are cut to 200 places, and may lie below those behind the upper ends.
    rounding = Fraction(1, 1 << 90)
    for epsilon, claimed, _, upper in file["points"]:
        need(epsilon >= 0 and 0 <= claimed <= 1, "a point outside its range")
        growth = exp_below(Fraction(epsilon))
        worst = max(delta_bound(laws[a], laws[b], growth, unit) for a, b in both_orders)
        bounded = worst <= Fraction(upper) + rounding
        need(bounded, f"at epsilon {epsilon} delta is only bounded by {float(worst)}")
        as_claimed = Fraction(upper) <= Fraction(claimed) + slack
        need(as_claimed, f"at epsilon {epsilon} delta may be {upper}, claimed {claimed}")
    print(f"valid: {file['mechanism']}, {looked_at}")
    epsilons = ", ".join(f"{point[0]:g}" for point in file["points"])
    print(f"delta at most the claimed one + {file['slack']:.2g} at epsilon", epsilons)


if __name__ == "__main__":
    main(sys.argv[1])
