"""Check a certificate of dptopk: python check_certificate.py FILE. Needs numpy and python-flint,
nothing of dptopk.

Claimed: whoever may spend the listed costs, in any order, adaptively, is (epsilon, delta)-DP.
Checked by a product of pairs (docs/notes/certificates.md): all that can be done with a group of
costs is dominated by one pair of laws, given by its profile H(u) = sup_S P(S) - u Q(S), convex and
decreasing in u = e^x. Node values joined by chords are the profile of a pair. Kinds of factors:

  BR(epsilon), in groups: the file holds node values V of each state, a multiset that may be left or
         a sum of weights. V must bound, for each range that may be played, the sup over
         a <= u <= a e^epsilon of the chord between a and a e^epsilon, at u, of V of the state after
         it. With weights, coins round each range to one that has a weight (docs/notes/setwise.md,
         Theorem E).
  Renyi: costs by the sum of their Renyi curves.
  Smoothed: small costs by one Gaussian, whose variance is computed here (docs/notes/setwise.md,
         Theorem H).
  Basic: pure costs by the sum of their epsilons.
  Moments: few zCDP and CDP costs step by step; the file holds multipliers, functions
         a + b w + sum g w^-e that must be above V of what is left at all w = e^y.
  others: the profile in closed form, of all copies of a cost together.

A single factor without ends of a lattice is evaluated at epsilon itself. On the common lattice
masses are rounded up to integers / 2^BITS and multiplied as polynomials; what is cut off moves up.

Words: a *profile* is a function from a number x to a ball above delta(x); a *law* is (a polynomial
of integer masses, the place of its first mass, the integer mass of an infinite loss); a *factor* f
is one entry of the file's list "factors". All numbers are balls (flint) or intervals (numpy, one
float outward after each operation).
"""

import base64
import json
import math
import re
import sys
import zlib
from bisect import bisect_left
from fractions import Fraction

import numpy as np
from flint import arb, ctx, fmpq, fmpz, fmpz_poly

ctx.prec = 160
BITS = 128
ONE = fmpz(1) << BITS
LARGEST = 1 << 24  # places of a lattice
LISTED = 1 << 17  # losses of one law, all of which are listed
BLOCK = 1 << 21  # chords of one step that are looked at together, which bounds the memory


def need(truth, what):
    """Refuse the file with a sentence unless ``truth``; an assert would be gone under python -O."""
    if not truth:
        sys.exit(f"refused: {what}")


def whole(*values):
    """Refuse values that are not integers from 1 on."""
    need(all(type(x) is int and x >= 1 for x in values), "counts must be integers from 1 on")


def number(*values, most=1e308):
    """Refuse values that are not numbers from 0 to ``most``."""
    inside = all(type(x) in (int, float) and 0 <= x <= most for x in values)
    need(inside, "a number outside its range")


def ball(x):
    """Return a ball that contains the number x, which is an int, a float or a Fraction."""
    return arb(fmpq(*Fraction(x).as_integer_ratio()))


def integer(x):
    """Return the mass in the ball x as an integer multiple of 2^-BITS, rounded up, at least 0."""
    return max(fmpz(0), (x * arb(ONE)).upper().ceil().unique_fmpz())


class Interval:
    """Intervals of float arrays; each operation moves both ends one float outward.

    Attributes:
        lo, hi: the lower and the upper ends.
    """

    def __init__(self, lo, hi=None):
        """Take the ends as they are; one number is an exact one."""
        self.lo = np.asarray(lo, float)
        self.hi = np.asarray(lo if hi is None else hi, float)

    @staticmethod
    def out(lo, hi):
        """Return the interval with these ends, moved one float outward."""
        return Interval(np.nextafter(lo, -np.inf), np.nextafter(hi, np.inf))

    def __getitem__(self, k):
        """Return a part of the array."""
        return Interval(self.lo[k], self.hi[k])

    def __add__(self, other):
        """Return the sum."""
        return Interval.out(self.lo + other.lo, self.hi + other.hi)

    def __sub__(self, other):
        """Return the difference."""
        return Interval.out(self.lo - other.hi, self.hi - other.lo)

    def __mul__(self, other):
        """Return the product; its ends are among the four products of ends.

        Zero times infinity is NaN, which is at most and at least no number: nothing follows from it.
        """
        with np.errstate(invalid="ignore"):
            products = [x * y for x in (self.lo, self.hi) for y in (other.lo, other.hi)]
        return Interval.out(np.minimum.reduce(products), np.maximum.reduce(products))

    def __truediv__(self, other):
        """Return the quotient; refuse a divisor that may be 0 or less."""
        need(np.all(other.lo > 0), "a divisor that may be 0")
        return self * Interval.out(1 / other.hi, 1 / other.lo)

    def positive(self):
        """Return the interval of max(x, 0)."""
        return Interval(np.maximum(self.lo, 0), np.maximum(self.hi, 0))

    def flat(self, size):
        """Return the first ``size`` entries as a one-dimensional array."""
        return Interval(self.lo.ravel()[:size], self.hi.ravel()[:size])

    def sqrt(self):
        """Return the square root of the part from 0 on."""
        return Interval.out(np.sqrt(self.positive().lo), np.sqrt(self.positive().hi))


def interval(balls):
    """Return intervals that contain these balls; a lower end is at most 1e308."""
    lower = [min(float(x.lower()), 1e308) for x in balls]
    return Interval.out(lower, [float(x.upper()) for x in balls])


# ---- bounded ranges


def upper_floats(balls):
    """Return the upper ends of balls as floats."""
    return np.array([float(x.upper()) for x in balls])


def shares(step, n):
    """Return the weights of a chord of n steps at u, for c = 0..n steps from its left end to u.

    These are the weights of the left and of the right end, ``bulge`` (what a chord with ends inside
    cells can be worth more, for c < n), and e^epsilon.
    """
    e = (ball(step) * n).exp()
    cell = (ball(step) / 2).exp()
    w = [(ball(step) * (n - c)).exp() for c in range(n + 1)]
    near = upper_floats((e - x) / (e - 1) for x in w)
    far = upper_floats((x - 1) / (e - 1) for x in w)
    bulge = upper_floats(x * (1 - 1 / cell) ** 2 / (e - 1) for x in w[:-1])
    return near, far, bulge, e


def check_step(h, new, u, n, near, far, bulge, e):
    """Refuse nodes ``new`` that do not bound the step of the chords through h.

    Args:
        h: intervals of node values, with n more nodes on each side than ``new``.
        new: node values, floats.
        u: e^x at the nodes of h, intervals.
        n: the number of steps of the range; e^epsilon = u[n]/u[0].
        near, far, bulge, e: as ``shares`` returns them.
    """
    one = Interval(1.0)
    e = Interval.out(float(e.lower()), float(e.upper()))
    b = (h[1:] - h[:-1]) / (u[1:] - u[:-1])
    a = h[:-1] - b * u[:-1]

    def around(values):
        """Return, for each offset, the values at all nodes of ``new``."""
        return np.lib.stride_tricks.sliding_window_view(values, len(new))

    # A chord that ends in cell c is worth no more than one that ends in the cell's ends, plus
    # (a - g) u (1/x^.5 - 1/y^.5)^2.
    left_ends = around(h.hi[:-n])
    right_ends = around(h.hi[n:])
    falls = around(np.maximum((a[:-n] - a[n:]).hi, 0))
    open_chords = []
    length = BLOCK // n + 1
    for first in range(0, len(new), length):
        part = slice(first, first + length)
        at_ends = near[:, None] * left_ends[:, part] + far[:, None] * right_ends[:, part]
        most = np.maximum(at_ends[:-1], at_ends[1:]) + bulge[:, None] * falls[:, part]
        cells, nodes = np.nonzero(~(most * (1 + 2e-15) + 1e-300 <= new[part]))
        open_chords.append((cells, nodes + first))
    # The few chords for which that is not enough are looked at closely. For s in cell c, where
    # h(s) = a + b s and h(s e) = g + d s, a chord is worth (t - p s - q/s)/(e - 1).
    c, j = (np.concatenate(parts) for parts in zip(*open_chords))
    k = c + j
    r = c + j + n
    mid = u[n + j]
    x = u[k]
    y = u[k + 1]
    g = a[r]
    d = b[r] * e
    p = d - b[k] * e
    q = (a[k] - g) * mid
    t = e * a[k] - b[k] * mid - g + d * mid
    best = np.maximum((t - p * x - q / x).hi, (t - p * y - q / y).hi)
    # The largest value, t - 2 sqrt(p q), may be inside the cell.
    low_enough = q.hi >= (p.positive() * x * x).lo
    high_enough = q.lo <= (p.positive() * y * y).hi
    may = (p.hi > 0) & (q.hi > 0) & low_enough & high_enough
    inner = (t - Interval(2.0) * (p.positive() * q.positive()).sqrt()).hi
    cell = Interval(x.lo, y.hi)
    inner = np.where(may, np.minimum(inner, (t - p * cell - q / cell).hi), -np.inf)
    best = (Interval(np.maximum(np.maximum(best, inner), 0)) / (e - one)).hi
    need(np.all(new[j] >= best), "a node value is below the step")


def extended(row, u, first, last):
    """Return intervals of a state's values at the nodes from ``first`` to before ``last``.

    They are on the chord from (0, 1) left of the stored nodes, and constant right of them.

    Args:
        row: the first stored node and the stored values.
        u: e^x at all nodes, intervals.
        first, last: the nodes wanted.
    """
    start, stored = row
    one = Interval(1.0)
    left = Interval(stored[:0])
    if first < start:
        left = one + (Interval(stored[0]) - one) / u[start] * u[first:start]
    values = stored[max(first - start, 0) : last - start]
    right = np.full(max(last - max(first, start + len(stored)), 0), stored[-1])
    lower = np.concatenate([left.lo, values, right])
    upper = np.concatenate([left.hi, values, right])
    return Interval(lower, upper)


def bounded_range(f):
    """Check that node values bound the steps between states; return the profiles of the groups.

    Returns:
        Pairs of a profile and the power to which it is taken.
    """
    step = Fraction(f["step"])
    steps = f["steps"]
    weights = f["weights"]
    whole(*steps, *weights)
    need(step > 0 and len(weights) in (0, len(steps)), "a step above 0, a weight for each range")
    low = min(first for _, first, _ in f["rows"]) - max(steps)
    end = max(first + size for _, first, size in f["rows"]) + max(steps)
    need(end - low <= LARGEST // 4, "a grid too wide")
    nodes = [(ball(step) * j).exp() for j in range(low, end)]
    u = Interval.out([float(x.lower()) for x in nodes], [float(x.upper()) for x in nodes])
    rows = checked_rows(f, u, low)

    def profile(row):
        """Return the profile of a state: the chords through its node values."""
        start, values = row
        around = nodes[start : start + len(values)]

        def of(x):
            """Return the value at x."""
            v = ball(x).exp()
            at = math.floor(x / step) - low - start
            if at < 0:
                return 1 + (ball(values[0]) - 1) / around[0] * v
            if at >= len(around) - 1:
                return ball(values[-1])
            share = (v - around[at]) / (around[at + 1] - around[at])
            return ball(values[at]) * (1 - share) + ball(values[at + 1]) * share

        return of

    if weights:
        return [(profile(expected(f, rows, u, [step * n for n in steps])), 1)]
    whole(*(power for _, power in f["parts"]))
    number(*(part for size, _ in f["parts"] for part in size))
    for j, (epsilon, count) in enumerate(f["ranges"]):
        need(step * steps[j] >= Fraction(epsilon), "a range larger than its steps")
        in_groups = sum(size[j] * power for size, power in f["parts"])
        need(in_groups >= count, "the groups are fewer than the count")
    return [(profile(rows[tuple(size)]), power) for size, power in f["parts"]]


def checked_rows(f, u, low):
    """Return the first node and the node values of each state, which bound all steps from it.

    Args:
        f: the factor.
        u: e^x at all nodes, intervals.
        low: the number of the first node, from which nodes are counted in the result.
    """
    steps = f["steps"]
    weights = f["weights"]
    if weights:
        takes = [(weight,) for weight in weights]
    else:
        takes = [tuple(int(i == j) for i in range(len(steps))) for j in range(len(steps))]
    stored = np.frombuffer(zlib.decompress(base64.b64decode(f["values"])))
    usable = np.all(np.isfinite(stored)) and np.all(stored >= 0) and np.all(np.isfinite(u.hi))
    need(usable, "node values must be finite, from 0 on")
    known = {n: shares(f["step"], n) for n in steps}
    rows = {}
    at = 0
    for state, first, size in f["rows"]:
        whole(*(left + 1 for left in state), size - 1)
        need(len(state) == len(takes[0]), "a state that is none")
        new = stored[at : at + size]
        start = first - low
        at += size
        nothing_left = (Interval(1.0) - u[start : start + size]).hi
        need(np.all(new >= nothing_left), "a node value of nothing is too low")
        if weights and state[0]:
            need((state[0] - 1,) in rows, "a state without the one before it")
            less = extended(rows[(state[0] - 1,)], u, start, start + size).hi
            need(np.all(new >= less), "less for more of them")
        for take, n in zip(takes, steps):
            if any(left < one for left, one in zip(state, take)):
                continue
            after = tuple(left - one for left, one in zip(state, take))
            need(after in rows, "a state without the one before it")
            begin = start - n
            end = start + size + n
            around = extended(rows[after], u, begin, end)
            check_step(around, new, u[begin:end], n, *known[n])
        rows[tuple(state)] = start, new
    need(at == len(stored), "more node values than rows, or fewer")
    return rows


def expected(f, rows, u, anchors):
    """Return the first node and the node values of the mean of W_S over the coins.

    A range becomes the larger of the two anchors around it with the chance
    (e^-a - e^-epsilon) / (e^-a - e^-b), and S is the sum of the weights.

    Args:
        f: the factor.
        rows: node values of each sum of weights.
        u: e^x at all nodes, intervals.
        anchors: the ranges that have weights.
    """
    weights = f["weights"]
    first = f["first"]
    (last,) = max(rows)
    law = (fmpz_poly([ONE]), 0, fmpz(0))
    need(anchors == sorted(set(anchors)), "the ranges with weights must rise")
    for epsilon, count in f["ranges"]:
        place = bisect_left(anchors, Fraction(epsilon))
        need(place < len(anchors), "a range above all that have weights")
        smaller = max(place - 1, 0)
        a, b, e = ((-ball(x)).exp() for x in (anchors[smaller], anchors[place], epsilon))
        coin = (a - e) / (a - b) if place else arb(1)
        masses = fmpz_poly([integer(1 - coin)]) * fmpz_poly([0, 1]) ** weights[smaller]
        masses += fmpz_poly([integer(coin)]) * fmpz_poly([0, 1]) ** weights[place]
        coins = power((masses, 0, fmpz(0)), count, last + 2)
        law = times(law, coins, last + 2)
    polynomial, lowest, infinite = law
    need(lowest == 0, "coins below 0")
    start, largest_values = rows[(last,)]
    values = Interval(np.zeros(len(largest_values)))
    for total, mass in enumerate([*polynomial.coeffs(), infinite]):
        probability = Interval.out(0.0, float((arb(mass) / arb(ONE)).upper()))
        row = Interval(1.0)  # beyond the last state everything may be lost
        if total <= last:  # W rises with the sum
            row = extended(rows[(max(total, first),)], u, start, start + len(values.hi))
        values = values + probability * row
    return start, values.hi


# ---- costs by their Renyi curves, and by one Gaussian


def symmetric(profile):
    """Return the profile of a class closed under swapping the neighbours, known for x >= 0."""

    def of(x):
        """Return the value at any x."""
        if x >= 0:
            return profile(x)
        return 1 - ball(x).exp() + ball(x).exp() * profile(-x)

    return of


def rise(x):
    """Return ln(sinh(x)/x)."""
    return (x.sinh() / x).log()


# Of a cost: a bound on ln E e^(tL) for t > 0, the one of ranges being their worst pair's.
MOMENTS = {
    "ZCDP": lambda t, rho, xi: t * (xi + rho * (1 + t)),
    "CDP": lambda t, mu, tau: t * min(mu, tau**2 / 2) + (t * tau) ** 2 / 2,
    "BR": lambda t, e: (1 + t) * rise((1 + t) * e / 2) - t * rise(t * e / 2) - rise(e / 2),
    "DP": lambda t, e: (((1 + t) * e).exp() + (-t * e).exp()).log() - (1 + e.exp()).log(),
    "GDP": lambda t, mu: t * (1 + t) * mu**2 / 2,
    "DGauss": lambda t, scale, shift: t * (1 + t) * (shift / scale) ** 2 / 2,
}
# Of a cost: a rho such that it is rho-zCDP.
RHO = {
    "ZCDP": lambda rho, xi: ball(rho + xi),
    "CDP": lambda mu, tau: ball(tau) ** 2 / 2,
    "DP": lambda e: ball(e) * (ball(e) / 2).tanh(),
    "DGauss": lambda scale, shift: ball((shift / scale) ** 2 / 2),
    "BR": lambda e: (ball(e).expm1() / ball(e)).log() + ball(e) / ball(e).expm1() - 1,
}


def renyi(f):
    """Return the profile of costs by their summed Renyi curves.

    Canonne-Kamath-Steinke 2020, Proposition 12: any order is valid, floats look for a good one.
    """
    costs = [(MOMENTS[kind], [ball(x) for x in values], n) for kind, *values, n in f["costs"]]

    def log(t):
        """Return ln of the bound on delta(x) at the order t, but for -t x."""
        conversion_gain = -t.log() - (1 + t) * (1 + 1 / t).log()
        return sum((moment(t, *values) * n for moment, values, n in costs), conversion_gain)

    coarse = np.geomspace(1e-6, 1e18, 200)
    at = ball(f.get("at", 1.0))
    middle = coarse[int(np.argmin([float(log(ball(t)) - ball(t) * at) for t in coarse]))]
    if "at" in f:
        orders = np.geomspace(middle / 1e3, middle * 1e3, 1750)
    else:
        orders = np.geomspace(1e-3, 1e9, 3500)
    rough = np.array([float(log(ball(t))) for t in orders])
    ratio = orders[1] / orders[0]

    def conversion(x):
        """Return a bound on delta(x), x >= 0, at about the best order."""
        k = min(max(int(np.argmin(rough - orders * float(x))), 1), len(orders) - 2)
        before, here, after = rough[k - 1 : k + 2] - orders[k - 1 : k + 2] * float(x)
        # The vertex of the parabola through the three.
        vertex = (before - after) / 2 / (before - 2 * here + after)
        if not abs(vertex) < 1:
            vertex = 0
        t = ball(orders[k] * ratio**vertex)
        return min(arb(1), (log(t) - t * ball(x)).exp().upper())

    return symmetric(conversion)


def smoothed(f):
    """Return the profile of the Gaussian of Theorem H for small costs; Gaussian costs are exact.

    The variance is that of the best of some starts s, none of them below the largest rho.
    """
    costs = [(kind, list(map(Fraction, values)), n) for kind, *values, n in f["costs"]]
    small = [(RHO[kind](*values), n) for kind, values, n in costs if kind != "GDP" and kind in RHO]
    all_known = all(kind == "GDP" or kind in RHO for kind, *_ in costs)
    need(small and all_known, "a smoothed factor is of costs that are zCDP")
    rho = max(rho.upper() for rho, _ in small)
    total = sum((rho * n for rho, n in small), arb(0))
    in_range = 0 < rho <= arb(fmpq(1, 2))
    need(in_range, "the largest rho of a smoothed factor must be above 0, at most 1/2")

    def variance(s):
        """Return the variance of the Gaussian for the small costs, from a start s."""
        a = 2 * rho / s
        b = 1 + rho / 4 + rho**2 / s
        beta = (rho / 8 + rho * a / 6).expm1() * (rho / 4 * (b + a * b**2 / 4)).exp()
        r = (1 + beta) * rho
        enlarged = (1 + beta) * total
        return s + 2 * enlarged + r / 2 * ((1 + 2 * enlarged / s).log() + r / s + r**2 / (3 * s**2))

    squares = [values[0] ** 2 * n for kind, values, n in costs if kind == "GDP"]
    exact = ball(sum(squares, Fraction(0)))
    least = min(variance(rho * (10 + k) / 10).upper() for k in range(71))
    return gaussian((least + exact).sqrt())


# ---- few zCDP and CDP costs step by step

# Of (xi, rho)-zCDP and (mu, tau)-CDP, whichever neighbour comes first: ln E e^(tL) and
# ln E e^(-(1+t)L) for t > 0 are at most this.
LIMITS = {
    "ZCDP": lambda t, rho, xi: t * (xi + rho * (1 + t)),
    "CDP": lambda t, mu, tau: t * (min(mu, tau**2 / 2) + tau**2 / 2 * t),
}


class MomentGame:
    """V of each multiset of a few zCDP and CDP costs, at the nodes 0, ..., n of a grid.

    It is computed, for each cost that may be first, as the least of what its majorants F give:
    E F(e^(x-L)) <= a + b e^x + sum g e^(K(e) - e x). F, convex, is above V, convex: on each cell
    its tangent at the middle is above V at both ends; left of the first node its tangent there is,
    up to V = 1 at w = 0; right of the last one F rises and V falls.

    Attributes:
        h: the distance of two nodes.
        n: the last node of V.
        left, far: majorants are compared with V at nodes from -left to far.
        classes: for each cost its function of LIMITS, its parameters, and its count.
        u: e^x at the nodes from -left to far, intervals.
        rows: V of each multiset, shape (n + 1,).
    """

    def __init__(self, f):
        """Read the grid and the costs of a factor."""
        self.h = Fraction(f["grid"])
        self.n = f["nodes"]
        self.left = f["left"]
        self.far = f["far"]
        whole(self.n, self.left, self.far)
        small = max(self.left, self.far) <= 1 << 13
        fits = self.h > 0 and self.n < self.far and small
        need(fits, "a grid of moments must have a step above 0, and be small")
        self.classes = [
            (LIMITS[kind], list(map(Fraction, values)), count)
            for kind, *values, count in f["costs"]
        ]
        self.rows = {tuple(0 for _ in self.classes): np.zeros(self.n + 1)}
        all_nodes = range(-self.left, self.far + 1)
        self.u = interval([(ball(self.h) * j).exp() for j in all_nodes])

    def limit(self, place, e):
        """Return K(e), the bound on ln E e^(eL) of one class, for e > 0 or e < -1."""
        function, values, _ = self.classes[place]
        return function(arb(e if e > 0 else -1 - e), *map(ball, values))

    def powers(self, e, x):
        """Return e^(-e (y - x)) at the middles y of all cells, from -left on, as intervals.

        They are products of a power at the start of a block of cells and one within the block.
        """
        block = math.isqrt(self.left + self.far) + 1
        h = ball(self.h)
        start = []
        for a in range(block + 1):
            start.append((-ball(e) * (h * (a * block - self.left) + h / 2 - ball(x))).exp())
        rough = interval(start)
        fine = interval([(-ball(e) * h * b).exp() for b in range(block)])
        product = Interval(rough.lo[:, None], rough.hi[:, None]) * fine
        return product.flat(self.left + self.far)

    def terms_of(self, majorant):
        """Return (x, first node, last node, a, b, terms) of a majorant, checked.

        Nodes are counted from -left; the terms are (e, g).
        """
        x, low, high, a, b, terms = majorant
        numbers = (x, a, b, *(z for term in terms for z in term))
        need(all(type(z) in (int, float) for z in numbers), "a majorant of no numbers")
        whole_ends = type(low) is type(high) is int
        inside = whole_ends and -self.left <= low < high <= self.far
        need(inside, "a majorant without nodes")
        valid = all(g >= 0 and (e > 0 or e < -1) for e, g in terms)
        need(valid, "a moment of an order that no cost bounds")
        return x, low + self.left, high + self.left, a, b, terms

    def step(self, majorant, place, V):
        """Check that a majorant is above V; return its bound on the step at the nodes 0..n.

        Args:
            majorant: as the file states it.
            place: the class of the cost that comes first.
            V: of what is left, at the nodes from -left to far.
        """
        x, low, high, a, b, terms = self.terms_of(majorant)
        inner = slice(self.left, self.left + self.n + 1)
        half = ball(self.h) / 2
        constant = interval([ball(a)])
        rising = interval([ball(b) * (-ball(x)).exp()]) * self.u
        line = constant + rising
        left_ends = line[low:high]
        right_ends = line[low + 1 : high + 1]
        origin = constant
        slope = rising[high : high + 1]
        after = line[inner]
        for e, g in terms:
            p = self.powers(e, x)
            order = ball(e)
            tangent_left = interval([ball(g) * (1 - order * (-half).expm1())])
            tangent_right = interval([ball(g) * (1 - order * half.expm1())])
            left_ends = left_ends + tangent_left * p[low:high]
            right_ends = right_ends + tangent_right * p[low:high]
            half_power = order * ball(self.h) / 2
            at_origin = interval([ball(g) * ((1 + order) * half_power.exp())])
            origin = origin + at_origin * p[low : low + 1]
            at_last = interval([ball(g) * (order * (-half_power).exp())])
            slope = slope - at_last * p[high - 1 : high]
            moment = interval([ball(g) * (self.limit(place, order) + half_power).exp()])
            after = after + moment * p[inner]
        V = V[low : high + 1]
        above = np.all(left_ends.lo >= V[:-1]) and np.all(right_ends.lo >= V[1:])
        need(above, "a majorant is below V")
        above_beyond = np.all(origin.lo >= 1) and np.all(slope.lo >= 0)
        need(above_beyond, "a majorant is below V beyond its nodes")
        return np.where(after.hi <= 1, after.hi, 1.0)

    def converted(self, state, t):
        """Return ln of the Renyi conversion of a multiset at the order t, but for -t x.

        E (1 - e^(x-L))+ <= E e^(tL) e^(-tx) t^t / (1 + t)^(1 + t).
        """
        need(type(t) in (int, float) and t > 0, "an order must be above 0")
        t = ball(t)
        moments = [self.limit(place, t) * count for place, count in enumerate(state)]
        return sum(moments, arb(0)) + t * t.log() - (1 + t) * (1 + t).log()

    def everywhere(self, row):
        """Return V of a multiset at the nodes from -left to far, by symmetry left of 0."""
        all_nodes = np.arange(-self.left, self.far + 1)
        V = row[np.minimum(np.abs(all_nodes), self.n)]
        by_symmetry = (Interval(1.0) - self.u + self.u * Interval(V)).hi
        return np.where(all_nodes < 0, by_symmetry, V)

    def add_row(self, state, firsts, orders):
        """Compute V of a multiset from those with one cost less, and store it.

        Args:
            state: how many costs of each class there are.
            firsts: for each class the majorants for a first cost of it.
            orders: of Renyi conversions.
        """
        whole(*(count + 1 for count in state))
        fits = len(state) == len(self.classes) == len(firsts) and state not in self.rows
        need(fits, "a state that is none")
        bounds = np.zeros(self.n + 1)
        for place, count in enumerate(state):
            if count:
                after = tuple(left - (at == place) for at, left in enumerate(state))
                V = self.everywhere(self.rows[after])
                steps = [self.step(majorant, place, V) for majorant in firsts[place]]
                bounds = np.maximum(bounds, np.minimum.reduce(steps, initial=1.0))
        for t in orders:
            factor = interval([(self.converted(state, t) + ball(t) * ball(self.h) / 2).exp()])
            inner = self.powers(t, 0.0)[self.left : self.left + self.n + 1]
            bound = (factor * inner).hi
            bounds = np.minimum(bounds, np.where(bound <= 1, bound, 1.0))
        self.rows[state] = bounds

    def worth(self, majorant, place, v):
        """Return the bound of a majorant on the step at x = v."""
        x, _, _, a, b, terms = self.terms_of(majorant)
        y = ball(v) - ball(x)
        moments = []
        for e, g in terms:
            moments.append(ball(g) * (self.limit(place, ball(e)) - ball(e) * y).exp())
        return ball(a) + ball(b) * y.exp() + sum(moments, arb(0))


def moments(f):
    """Return the profile of a few zCDP and CDP costs, step by step (``MomentGame``)."""
    game = MomentGame(f)
    for state, firsts, orders in f["states"]:
        game.add_row(tuple(state), firsts, orders)
    counts = tuple(count for *_, count in game.classes)
    states = {tuple(state): (firsts, orders) for state, firsts, orders in f["states"]}
    all_firsts, all_orders = states[counts]
    conversions = [(ball(t), game.converted(counts, t)) for t in all_orders]

    def profile(v):
        """Return the bound at v >= 0: the largest over first costs of their least majorants."""
        steps = []
        for place, majorants in enumerate(all_firsts):
            near = sorted(majorants, key=lambda majorant: abs(majorant[0] - v))[:4]
            steps.append(min([arb(1), *(game.worth(m, place, v).upper() for m in near)]))
        x = ball(v)
        by_orders = [(constant - t * x).exp().upper() for t, constant in conversions]
        return min([max(steps), *by_orders])

    return symmetric(profile)


# ---- closed forms


def basic(f):
    """Return the profile of pure costs: no loss is above the sum of their epsilons."""
    need(all(kind in ("DP", "BR") for kind, *_ in f["costs"]), "a sum of epsilons is of pure costs")
    total = sum(Fraction(epsilon) * n for _, epsilon, n in f["costs"])

    def profile(x):
        """Return 1 - e^(x - total) below the sum, 0 from there on."""
        if x >= total:
            return arb(0)
        return 1 - ball(x - total).exp()

    return profile


def gaussian(mu):
    """Return the profile of the pair N(0, 1), N(mu, 1)."""

    def cdf(z):
        """Return P[N(0, 1) <= z]; not by 1 + erf, because e^x multiplies its error."""
        return (-z / arb(2).sqrt()).erfc() / 2

    def profile(x):
        """Return delta(x)."""
        return cdf(mu / 2 - ball(x) / mu) - ball(x).exp() * cdf(-mu / 2 - ball(x) / mu)

    return profile


def gaussians(f):
    """Return the profile of copies of a Gaussian cost, which together are one."""
    return gaussian(ball(f["mu"]) * ball(f["count"]).sqrt())


def of_sum(f, masses, first, infinite, loss):
    """Return the profile of f["count"] copies of a law on the integers.

    Args:
        f: the factor.
        masses: the probabilities of first, first + 1, ..., as balls.
        first: the first integer.
        infinite: the integer mass of an infinite loss.
        loss: maps the sum of the integers to the exact loss, rising.
    """
    whole(f["width"])
    need(f["width"] <= LISTED, "a law too wide")
    law = (fmpz_poly([integer(m) for m in masses]), first, infinite)
    total, start, infinite = power(law, f["count"], f["width"])
    losses = [loss(start + i) for i in range(len(total))]
    # Sums from the largest loss down, under P and under Q.
    p = [arb(infinite)]
    q = [arb(0)]
    for m, x in zip(reversed(total.coeffs()), reversed(losses)):
        p.append(p[-1] + arb(m))
        q.append(q[-1] + arb(m) * (-ball(x)).exp())

    def profile(x):
        """Return delta(x)."""
        j = len(losses) - bisect_left(losses, x)
        return (p[j] - ball(x).exp() * q[j]) / arb(ONE)

    return profile


def pure(f):
    """Return the profile of copies of randomised response; the integers count true answers."""
    lie = 1 / (1 + ball(f["epsilon"]).exp())
    epsilon = Fraction(f["epsilon"])
    return of_sum(f, [lie, 1 - lie], 0, fmpz(0), lambda s: (2 * s - f["count"]) * epsilon)


def discrete_gaussian(f):
    """Return the profile of copies of discrete Gaussian noise.

    With s the sum of the noises turned round the loss is shift (2 s + count shift) / (2 scale^2).
    """
    need(30 * f["scale"] <= LISTED, "a noise too wide")
    s = Fraction(f["scale"])
    a = f["shift"]
    reach = math.ceil(30 * f["scale"])
    weights = [(-ball(Fraction(z * z) / (2 * s * s))).exp() for z in range(reach + 1)]
    tail = weights[-1] / (1 - (-ball(reach / (s * s))).exp())  # of one side, at least
    masses = [w / (2 * sum(weights, arb(0)) - 1) for w in weights]
    both_sides = masses[:0:-1] + masses

    def loss(y):
        """Return the loss at a sum y of the noises turned round."""
        return a * (2 * y + f["count"] * a) / (2 * s * s)

    return of_sum(f, both_sides, -reach, integer(2 * tail), loss)


PROFILES = {
    "DP": pure,
    "GDP": gaussians,
    "DGauss": discrete_gaussian,
    "Renyi": renyi,
    "Smoothed": smoothed,
    "Basic": basic,
    "Moments": moments,
}
PARAMETERS = {"DP": ["epsilon"], "GDP": ["mu"], "DGauss": ["scale", "shift"]}


# ---- the charge


NUMBERS = r"[-+.\de]+(?:, (?:xi=)?[-+.\de]+)?"
TERM = rf"(?:(\d+)\*)?(\w+)\(({NUMBERS})\)"


def listed_in(f):
    """Return what a factor is made of, as tuples of a kind, its numbers, and a count."""
    if f["kind"] in PARAMETERS:
        return [(f["kind"], *(f[name] for name in PARAMETERS[f["kind"]]), f["count"])]
    if f["kind"] == "BR":
        return [("BR", epsilon, count) for epsilon, count in f["ranges"]]
    return f["costs"]


def same_charge(c):
    """Refuse a file whose text states more than factors, failures and bad events add up to.

    Costs are compared one by one, but Gaussian ones by the sum of their mu^2: no sum of zCDP costs
    says what each of them is.
    """
    listed = {("delta",): Fraction(c["bad"])}

    def add(sums, key, amount):
        """Add an amount to a sum."""
        sums[key] = sums.get(key, 0) + amount

    for d, n in c["failures"]:
        add(listed, ("failure", Fraction(d)), n)
    for f in c["factors"]:
        for kind, *values, n in listed_in(f):
            values = [Fraction(value) for value in values]
            if kind == "GDP":
                add(listed, ("GDP",), values[0] ** 2 * n)
            else:
                add(listed, (kind, *values), n)
    stated = stated_in(c["charge"])
    for key, amount in stated.items():
        nothing = key not in (("delta",), ("GDP",)) and not any(key[1:])  # DP(0) is nothing
        enough = nothing or listed.get(key, 0) >= amount
        need(enough, "the text states more than the factors")


def stated_in(text):
    """Return the sums that the text of a charge states, by the keys that ``same_charge`` uses."""
    readable = re.fullmatch(rf"0|{TERM}(?: \+ {TERM})*(?: \[[a-z_, ]+\])?", text)
    need(readable, "the charge's text cannot be read")
    stated = {}
    for times, name, arguments in re.findall(TERM, text):
        n = int(times or 1)
        values = [abs(Fraction(float(value.split("=")[-1]))) for value in arguments.split(",")]
        if name == "delta":
            parts = [((name, *values[1:]), values[0] * n)]
        elif name == "ADP":
            parts = [(("DP", values[0]), n), (("failure", values[-1]), n)]
        elif name == "GDP":
            parts = [((name, *values[1:]), values[0] ** 2 * n)]
        elif name == "ZCDP":
            parts = [(("ZCDP", values[0], sum(values[1:])), n)]
        else:
            parts = [((name, *values), n)]
        for key, amount in parts:
            stated[key] = stated.get(key, 0) + amount
    return stated


# ---- the product on the lattice


def pair(profile, step, first, last):
    """Return the law whose profile is above the given one: masses at first..last, in steps.

    Its masses under P are u times the changes of slope of chords through points of the profile.
    Chords between fewer points bound a convex function too, so points above the others are left
    out.
    """
    points = [(arb(0), arb(1), first)]  # u, the profile, the place
    masses = [fmpz(0)] * (last - first + 1)

    def slope(one, other):
        """Return the slope of the chord between two points."""
        return (other[1] - one[1]) / (other[0] - one[0])

    for j in range(first, last + 1):
        here = (ball(step) * j).exp(), min(arb(1), arb(profile(step * j).upper())), j
        while len(points) > 1 and slope(points[-2], points[-1]) > slope(points[-1], here):
            points.pop()
        points.append(here)
    slopes = [*(slope(*ends) for ends in zip(points, points[1:])), arb(0)]
    for (u, _, j), before, after in zip(points[1:], slopes, slopes[1:]):
        masses[j - first] = integer((after - before) * u)
    return fmpz_poly(masses), first, integer(points[-1][1])


def times(one, other, width):
    """Return the law of the sum of two losses, rounded up, cut to ``width`` places.

    What is cut off above moves to infinity, what is cut off below moves up to the first place left.
    """
    c = [(x >> BITS) + 1 for x in (one[0] * other[0]).coeffs()]
    drop = max(0, len(c) - width)
    while drop and sum(c[-drop:]) > (ONE >> 60):
        drop //= 2
    infinite = one[2] + other[2] + sum(c[len(c) - drop :])
    c = c[: len(c) - drop]
    drop = max(0, len(c) - width)
    polynomial = fmpz_poly([sum(c[: drop + 1]), *c[drop + 1 :]])
    return polynomial, one[1] + other[1] + drop, infinite


def power(square, k, width):
    """Return the law of the sum of k equal losses, by repeated squaring."""
    total = (fmpz_poly([ONE]), 0, fmpz(0))
    while k:
        if k & 1:
            total = times(total, square, width)
        k = k >> 1
        if k:
            square = times(square, square, width)
    return total


def product_delta(c, step, x):
    """Return a bound on the delta at x of the product of all factors on the lattice."""
    total = (fmpz_poly([ONE]), 0, fmpz(0))
    for f in c["factors"]:
        ends = type(f["low"]) is type(f["high"]) is int and 0 <= f["high"] - f["low"] <= LARGEST
        need(ends, "ends of a lattice")
        # Only ranges may be multiplied fewer times than there are of them: parts of ``size`` of
        # them are groups.
        profiles = bounded_range(f) if f["kind"] == "BR" else [(PROFILES[f["kind"]](f), 1)]
        for profile, k in profiles:
            law = pair(profile, step, f["low"], f["high"])
            total = times(total, power(law, k, c["width"]), c["width"])
    polynomial, first, infinite = total
    gained = arb(0)
    for i, mass in enumerate(polynomial.coeffs()):
        gain = 1 - (x - ball(step) * (first + i)).exp()
        if not gain <= 0:
            gained += arb(mass) * gain
    return (arb(infinite) + gained) / arb(ONE)


def single_delta(f, epsilon):
    """Return a bound on the delta at epsilon of a factor that is evaluated there itself."""
    profile = PROFILES[f["kind"]](f | {"at": epsilon})
    return min(arb(1), arb(profile(Fraction(epsilon)).upper()))


def verify(path):
    """Read a certificate, check it, and print what it proves; refuse it otherwise."""
    with open(path, encoding="utf-8") as file:
        c = json.load(file)
    version = c.get("format")
    need(version in (4, 5, 6), f"a file of format {version}; this program reads formats 4 to 6")
    number(c["epsilon"])
    number(c["bad"], c["delta"], *(d for d, _ in c["failures"]), most=1)
    whole(*(n for _, n in c["failures"]))
    step = Fraction(c["step"])
    need(step > 0, "the lattice's step must be above 0")
    whole(c["width"])
    need(c["width"] <= LARGEST, "a lattice too wide")
    costs = []
    for f in c["factors"]:
        for kind, *values, count in listed_in(f):
            number(*values)
            whole(count, *(values[1:] if kind == "DGauss" else []))
            costs.append(f"{count} {kind} {' '.join(map(str, values))}")
    first = c["factors"][0] if len(c["factors"]) == 1 else None
    if first is not None and first["kind"] != "BR" and "low" not in first:
        finite = single_delta(first, c["epsilon"])
    else:
        finite = product_delta(c, step, ball(c["epsilon"]))
    same_charge(c)
    # 1 - the product of all 1 - d; no difference of numbers near 1: the smallest deltas keep their
    # digits.
    log_survival = sum(((-ball(d)).log1p() * n for d, n in c["failures"]), arb(0))
    fails = -log_survival.expm1()
    delta = ball(c["bad"]) + fails + (1 - fails) * finite
    need(delta.upper() <= ball(c["delta"]), f"delta is only bounded by {delta.upper()}")
    guarantee = f"({c['epsilon']}, {c['delta']})-DP, {delta.upper()}"
    print("valid:", "; ".join(costs), f"and {c['failures']}, {c['bad']}: {guarantee}")


NOT_A_CERTIFICATE = (
    ArithmeticError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    zlib.error,
)


def main(path):
    """Verify a file; exit with a sentence where it is no certificate, or proves nothing."""
    try:
        verify(path)
    except NOT_A_CERTIFICATE as error:
        sys.exit(f"refused: not a certificate ({type(error).__name__}: {error})")


if __name__ == "__main__":
    main(sys.argv[1])
