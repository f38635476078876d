"""Check a certificate of dptopk: python check_certificate.py FILE. Needs numpy and python-flint, nothing of dptopk.
Claimed: whoever may spend the listed costs, in any order, adaptively, is (epsilon, delta)-DP. Checked by a product of pairs
(docs/notes/certificates.md): all that can be done with a group of costs is dominated by one pair of laws, given by its profile
H(u) = sup_S P(S) - u Q(S), convex and decreasing in u = e^x. Node values joined by chords are the profile of a pair.
  BR(epsilon), in groups: the file holds node values V of each state, a multiset that may be left or a sum of weights. V must bound,
         for each range that may be played, the sup over a <= u <= a e^epsilon of the chord between a and a e^epsilon, at u, of V of
         the state after it. With weights, coins round each range to one that has a weight (docs/notes/setwise.md, Theorem E).
  Renyi: costs by the sum of their Renyi curves. Smoothed: small costs by one Gaussian, whose variance is computed here
         (docs/notes/setwise.md, Theorem H). Basic: pure costs by the sum of their epsilons. Moments: few zCDP and CDP costs step by
         step; the file holds multipliers, functions a + b w + sum g w^-e that must be above V of what is left at all w = e^y.
  others: the profile in closed form, of all copies of a cost together.
A single factor without ends of a lattice is evaluated at epsilon itself. On the common lattice masses are rounded up to integers / 2^BITS and multiplied as polynomials; what is cut off moves up.
All numbers are balls (flint) or intervals (numpy, one float outward after each operation)."""

import base64, json, math, re, sys, zlib
from bisect import bisect_left
from fractions import Fraction
import numpy as np
from flint import arb, ctx, fmpq, fmpz, fmpz_poly
ctx.prec, BITS = 160, 128
ONE = fmpz(1) << BITS
LARGEST, LISTED = 1 << 24, 1 << 17  # places of a lattice; losses of one law
def need(truth, what):  # an assert would be gone under python -O
    if not truth:
        sys.exit(f"refused: {what}")
def whole(*values):
    need(all(type(x) is int and x >= 1 for x in values), "counts must be integers from 1 on")
def number(*values, most=1e308):
    need(all(type(x) in (int, float) and 0 <= x <= most for x in values), "a number outside its range")
ball = lambda x: arb(fmpq(*Fraction(x).as_integer_ratio()))
class I:  # intervals of float arrays
    def __init__(self, lo, hi=None):
        self.lo, self.hi = np.asarray(lo, float), np.asarray(lo if hi is None else hi, float)
    def out(lo, hi):
        return I(np.nextafter(lo, -np.inf), np.nextafter(hi, np.inf))
    def __getitem__(self, k):
        return I(self.lo[k], self.hi[k])
    def __add__(a, b):
        return I.out(a.lo + b.lo, a.hi + b.hi)
    def __sub__(a, b):
        return I.out(a.lo - b.hi, a.hi - b.lo)
    def __mul__(a, b):
        p = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        return I.out(np.minimum.reduce(p), np.maximum.reduce(p))
    def __truediv__(a, b):
        need(np.all(b.lo > 0), "a divisor that may be 0")
        return a * I.out(1 / b.hi, 1 / b.lo)
    def positive(a):
        return I(np.maximum(a.lo, 0), np.maximum(a.hi, 0))
    def flat(a, size):
        return I(a.lo.ravel()[:size], a.hi.ravel()[:size])
    def sqrt(a):  # of the part from 0 on
        return I.out(np.sqrt(a.positive().lo), np.sqrt(a.positive().hi))
def shares(step, n):
    """Of chords of n steps, c = 0..n steps right of u - n steps: (near, far) of their ends at u, and ``bulge`` for a cell."""
    e, g, up = (ball(step) * n).exp(), (ball(step) / 2).exp(), lambda values: np.array([float(x.upper()) for x in values])
    w = [(ball(step) * (n - c)).exp() for c in range(n + 1)]
    return up((e - x) / (e - 1) for x in w), up((x - 1) / (e - 1) for x in w), up(x * (1 - 1 / g) ** 2 / (e - 1) for x in w[:-1]), e
def check_step(h, new, u, n, near, far, bulge, e):
    """The nodes ``new`` bound the step of the chords through h; u and h have n more nodes on each side, e^epsilon = u[n]/u[0]."""
    one, e = I(1.0), I.out(float(e.lower()), float(e.upper()))
    b = (h[1:] - h[:-1]) / (u[1:] - u[:-1])
    a, around = h[:-1] - b * u[:-1], lambda values: np.lib.stride_tricks.sliding_window_view(values, len(new))
    # A chord that ends in cell c is worth no more than one that ends in the cell's ends, plus (a - g) u (1/x^.5 - 1/y^.5)^2.
    ends = near[:, None] * around(h.hi[:-n]) + far[:, None] * around(h.hi[n:])
    most = np.maximum(ends[:-1], ends[1:]) + bulge[:, None] * around(np.maximum((a[:-n] - a[n:]).hi, 0))
    c, j = np.nonzero(~(most * (1 + 2e-15) + 1e-300 <= new))  # the few others are looked at closely
    k, r, mid = c + j, c + j + n, u[n + j]
    x, y, g, d = u[k], u[k + 1], a[r], b[r] * e  # for s in cell c, where h(s) = a + b s and h(s e) = g + d s: t - p s - q/s
    p, q, t = d - b[k] * e, (a[k] - g) * mid, e * a[k] - b[k] * mid - g + d * mid
    best = np.maximum((t - p * x - q / x).hi, (t - p * y - q / y).hi)
    may = (p.hi > 0) & (q.hi > 0) & (q.hi >= (p.positive() * x * x).lo) & (q.lo <= (p.positive() * y * y).hi)
    inner, w = (t - I(2.0) * (p.positive() * q.positive()).sqrt()).hi, I(x.lo, y.hi)
    inner = np.where(may, np.minimum(inner, (t - p * w - q / w).hi), -np.inf)
    best = (I(np.maximum(np.maximum(best, inner), 0)) / (e - one)).hi
    need(np.all(new[j] >= best), "a node value is below the step")
def extended(row, u, first, last):
    """The chords through node values (start, values) at more nodes: from (0, 1) on the left, a constant on the right."""
    (start, v), one = row, I(1.0)
    left = one + (I(v[0]) - one) / u[start] * u[first:start] if first < start else I(v[:0])
    v, size = v[max(first - start, 0) : last - start], max(last - max(first, start + len(v)), 0)
    return I(*(np.concatenate([side, v, np.full(size, row[1][-1])]) for side in (left.lo, left.hi)))
def bounded_range(f):
    """For each state node values that bound the steps to all states after one more range; then the profiles of the groups."""
    step, steps, weights, rows, at = Fraction(f["step"]), f["steps"], f["weights"], {}, 0
    whole(*steps, *weights), need(step > 0 and len(weights) in (0, len(steps)), "a step above 0, a weight for each range")
    takes = [(weight,) for weight in weights] or [tuple(int(i == j) for i in range(len(steps))) for j in range(len(steps))]
    low, end = min(first for _, first, _ in f["rows"]) - max(steps), max(first + size for _, first, size in f["rows"]) + max(steps)
    need(end - low <= LARGEST // 4, "a grid too wide")
    nodes = [(ball(step) * j).exp() for j in range(low, end)]
    u = I.out([float(x.lower()) for x in nodes], [float(x.upper()) for x in nodes])
    stored = np.frombuffer(zlib.decompress(base64.b64decode(f["values"])))
    need(np.all(np.isfinite(stored)) and np.all(stored >= 0) and np.all(np.isfinite(u.hi)), "node values must be finite, from 0 on")
    known = {n: shares(step, n) for n in steps}
    for state, first, size in f["rows"]:
        whole(*(left + 1 for left in state), size - 1), need(len(state) == len(takes[0]), "a state that is none")
        new, start, at = stored[at : at + size], first - low, at + size
        need(np.all(new >= (I(1.0) - u[start : start + size]).hi), "a node value of nothing is too low")
        if weights and state[0]:
            need((state[0] - 1,) in rows, "a state without the one before it")
            need(np.all(new >= extended(rows[state[0] - 1,], u, start, start + size).hi), "less for more of them")
        for take, n in ((take, n) for take, n in zip(takes, steps) if all(left >= one for left, one in zip(state, take))):
            before = tuple(left - one for left, one in zip(state, take))
            need(before in rows, "a state without the one before it")
            first, last = start - n, start + size + n
            check_step(extended(rows[before], u, first, last), new, u[first:last], n, *known[n])
        rows[tuple(state)] = start, new
    need(at == len(stored), "more node values than rows, or fewer")
    def profile(row):
        (start, end), around = row, nodes[row[0] : row[0] + len(row[1])]
        def of(x):
            v, at = ball(x).exp(), math.floor(x / step) - low - start
            if at < 0 or at >= len(around) - 1:
                return 1 + (ball(end[0]) - 1) / around[0] * v if at < 0 else ball(end[-1])
            share = (v - around[at]) / (around[at + 1] - around[at])
            return ball(end[at]) * (1 - share) + ball(end[at + 1]) * share
        return of
    if weights:
        return [(profile(expected(f, rows, u, [step * n for n in steps])), 1)]
    whole(*(power for _, power in f["parts"])), number(*(part for size, _ in f["parts"] for part in size))
    for j, (epsilon, count) in enumerate(f["ranges"]):
        need(step * steps[j] >= Fraction(epsilon), "a range larger than its steps")
        need(sum(size[j] * power for size, power in f["parts"]) >= count, "the groups are fewer than the count")
    return [(profile(rows[tuple(size)]), power) for size, power in f["parts"]]
def expected(f, rows, u, anchors):
    """Node values of the mean over the coins: a range becomes the larger of two with (e^-a - e^-epsilon) / (e^-a - e^-b)."""
    law, weights, last, first = (fmpz_poly([ONE]), 0, fmpz(0)), f["weights"], max(rows)[0], f["first"]
    need(anchors == sorted(set(anchors)), "the ranges with weights must rise")
    for epsilon, count in f["ranges"]:
        place = bisect_left(anchors, Fraction(epsilon))
        need(place < len(anchors), "a range above all that have weights")
        a, b, e = ((-ball(x)).exp() for x in (anchors[max(place - 1, 0)], anchors[place], epsilon))
        coin = (a - e) / (a - b) if place else arb(1)
        masses = fmpz_poly([integer(1 - coin)]) * fmpz_poly([0, 1]) ** weights[max(place - 1, 0)]
        law = times(law, power((masses + fmpz_poly([integer(coin)]) * fmpz_poly([0, 1]) ** weights[place], 0, fmpz(0)), count, last + 2), last + 2)
    need(law[1] == 0, "coins below 0")
    start, values = rows[last,][0], I(np.zeros(len(rows[last,][1])))
    masses = [I.out(0.0, float((arb(mass) / arb(ONE)).upper())) for mass in [*law[0].coeffs(), law[2]]]
    for total, mass in enumerate(masses):  # W rises with the sum; beyond the last state everything may be lost
        row = extended(rows[max(total, first),], u, start, start + len(values.hi)) if total <= last else I(1.0)
        values = values + mass * row
    return start, values.hi
symmetric = lambda profile: lambda x: profile(x) if x >= 0 else 1 - ball(x).exp() + ball(x).exp() * profile(-x)
rise = lambda x: (x.sinh() / x).log()
# Of a cost: a bound on ln E e^(tL) for t > 0, the one of ranges being their worst pair's; a rho such that it is rho-zCDP.
MOMENTS = {"ZCDP": lambda t, rho, xi: t * (xi + rho * (1 + t)), "CDP": lambda t, mu, tau: t * min(mu, tau**2 / 2) + (t * tau) ** 2 / 2,
           "BR": lambda t, e: (1 + t) * rise((1 + t) * e / 2) - t * rise(t * e / 2) - rise(e / 2),
           "DP": lambda t, e: (((1 + t) * e).exp() + (-t * e).exp()).log() - (1 + e.exp()).log(),
           "GDP": lambda t, mu: t * (1 + t) * mu**2 / 2, "DGauss": lambda t, scale, shift: t * (1 + t) * (shift / scale) ** 2 / 2}
RHO = {"ZCDP": lambda rho, xi: ball(rho + xi), "CDP": lambda mu, tau: ball(tau) ** 2 / 2,
       "DP": lambda e: ball(e) * (ball(e) / 2).tanh(), "DGauss": lambda scale, shift: ball((shift / scale) ** 2 / 2),
       "BR": lambda e: (ball(e).expm1() / ball(e)).log() + ball(e) / ball(e).expm1() - 1}
def renyi(f):  # Canonne-Kamath-Steinke 2020, Proposition 12: any order is valid, floats look for a good one
    costs = [(MOMENTS[kind], [ball(x) for x in values], n) for kind, *values, n in f["costs"]]
    log = lambda t: sum((moment(t, *values) * n for moment, values, n in costs), -t.log() - (1 + t) * (1 + 1 / t).log())
    coarse = np.geomspace(1e-6, 1e18, 200)
    middle = coarse[int(np.argmin([float(log(ball(t)) - ball(t) * ball(f.get("at", 1.0))) for t in coarse]))]
    orders = np.geomspace(1e-3, 1e9, 3500) if "at" not in f else np.geomspace(middle / 1e3, middle * 1e3, 1750)
    rough = np.array([float(log(ball(t))) for t in orders])
    def conversion(x):
        k = min(max(int(np.argmin(rough - orders * float(x))), 1), len(orders) - 2)
        before, here, after = rough[k - 1 : k + 2] - orders[k - 1 : k + 2] * float(x)
        vertex = (before - after) / 2 / (before - 2 * here + after)  # of the parabola through the three
        t = ball(orders[k] * (orders[1] / orders[0]) ** (vertex if abs(vertex) < 1 else 0))
        return min(arb(1), (log(t) - t * ball(x)).exp().upper())
    return symmetric(conversion)
def smoothed(f):
    """The Gaussian of Theorem H, for the best of some starts s, none of them below the largest rho; Gaussian costs as they are."""
    costs = [(kind, list(map(Fraction, values)), n) for kind, *values, n in f["costs"]]
    small = [(RHO[kind](*values), n) for kind, values, n in costs if kind != "GDP" and kind in RHO]
    need(small and all(kind == "GDP" or kind in RHO for kind, *_ in costs), "a smoothed factor is of costs that are zCDP")
    rho, total = max(rho.upper() for rho, _ in small), sum((rho * n for rho, n in small), arb(0))
    need(0 < rho <= arb(fmpq(1, 2)), "the largest rho of a smoothed factor must be above 0, at most 1/2")
    def variance(s):
        a, b = 2 * rho / s, 1 + rho / 4 + rho**2 / s
        beta = (rho / 8 + rho * a / 6).expm1() * (rho / 4 * (b + a * b**2 / 4)).exp()
        r, whole = (1 + beta) * rho, (1 + beta) * total
        return s + 2 * whole + r / 2 * ((1 + 2 * whole / s).log() + r / s + r**2 / (3 * s**2))
    exact = ball(sum((values[0] ** 2 * n for kind, values, n in costs if kind == "GDP"), Fraction(0)))
    return gaussian((min(variance(rho * (10 + k) / 10).upper() for k in range(71)) + exact).sqrt())
# Of (xi, rho)-zCDP and (mu, tau)-CDP, whichever neighbour comes first: ln E e^(tL) and ln E e^(-(1+t)L) for t > 0 are at most this.
LIMITS = {"ZCDP": lambda t, rho, xi: t * (xi + rho * (1 + t)), "CDP": lambda t, mu, tau: t * (min(mu, tau**2 / 2) + tau**2 / 2 * t)}
interval = lambda balls: I.out([min(float(x.lower()), 1e308) for x in balls], [float(x.upper()) for x in balls])
def moments(f):
    """V of each multiset at the nodes 0, ..., n of a grid: for each cost that may be first the least of what its majorants F give,
    E F(e^(x-L)) <= a + b e^x + sum g e^(K(e) - e x). F, convex, is above V, convex: on each cell its tangent at the middle is above
    V at both ends; left of the first node its tangent there is, up to V = 1 at w = 0; right of the last one F rises and V falls."""
    h, n, left, far = Fraction(f["grid"]), f["nodes"], f["left"], f["far"]
    whole(n, left, far), need(h > 0 and n < far and max(left, far) <= 1 << 13, "a grid of moments must have a step above 0, and be small")
    classes = [(LIMITS[kind], list(map(Fraction, values)), count) for kind, *values, count in f["costs"]]
    limit = lambda place, e: classes[place][0](arb(e if e > 0 else -1 - e), *map(ball, classes[place][1]))
    one, rows = I(1.0), {tuple(0 for _ in classes): np.zeros(n + 1)}
    u = interval([(ball(h) * j).exp() for j in range(-left, far + 1)])
    block = math.isqrt(left + far) + 1
    def powers(e, x):  # e^(-e (y - x)) at the middles y of all cells, from -left on
        start, steps = [(-ball(e) * (ball(h) * (a * block - left) + ball(h) / 2 - ball(x))).exp() for a in range(block + 1)], range(block)
        rough, fine = interval(start), interval([(-ball(e) * ball(h) * b).exp() for b in steps])
        return (I(rough.lo[:, None], rough.hi[:, None]) * fine).flat(left + far)
    def terms_of(m, place):
        x, low, high, a, b, terms = m
        need(all(type(z) in (int, float) for z in (x, a, b, *(z for term in terms for z in term))), "a majorant of no numbers")
        need(type(low) is type(high) is int and -left <= low < high <= far and terms, "a majorant without nodes or terms")
        need(all(g >= 0 and (e > 0 or e < -1) for e, g in terms), "a moment of an order that no cost bounds")
        return x, low + left, high + left, a, b, terms
    def step(m, place, before):
        x, low, high, a, b, terms = terms_of(m, place)
        a, rising = interval([ball(a)]), interval([ball(b) * (-ball(x)).exp()]) * u
        line, origin, slope = a + rising, a, rising[high : high + 1]
        ends, after = [line[low:high], line[low + 1 : high + 1]], line[left : left + n + 1]
        for e, g in terms:
            p, half, s = powers(e, x), ball(e) * ball(h) / 2, ball(h) / 2
            at = lambda factor: interval([ball(g) * factor])
            ends = [end + at(1 - ball(e) * sign(s).expm1()) * p[low:high] for end, sign in zip(ends, (lambda s: -s, lambda s: s))]
            origin, slope = origin + at((1 + ball(e)) * half.exp()) * p[low : low + 1], slope - at(ball(e) * (-half).exp()) * p[high - 1 : high]
            after = after + at((limit(place, ball(e)) + half).exp()) * p[left : left + n + 1]
        V = before[low : high + 1]
        need(np.all(ends[0].lo >= V[:-1]) and np.all(ends[1].lo >= V[1:]), "a majorant is below V")
        need(np.all(origin.lo >= 1) and np.all(slope.lo >= 0), "a majorant is below V beyond its nodes")
        return np.where(after.hi <= 1, after.hi, 1.0)
    places = np.minimum(np.abs(np.arange(-left, far + 1)), n)
    def converted(state, t):  # E (1 - e^(x-L))+ <= E e^(tL) e^(-tx) t^t / (1 + t)^(1 + t)
        need(type(t) in (int, float) and t > 0, "an order must be above 0")
        t = ball(t)
        return sum((limit(place, t) * count for place, count in enumerate(state)), arb(0)) + t * t.log() - (1 + t) * (1 + t).log()
    for state, firsts, orders in f["states"]:
        state, bounds = tuple(state), np.zeros(n + 1)
        whole(*(count + 1 for count in state)), need(len(state) == len(classes) == len(firsts) and state not in rows, "a state that is none")
        for place, count in enumerate(state):
            if count:
                V = rows[tuple(number - (at == place) for at, number in enumerate(state))][places]
                V = np.where(np.arange(-left, far + 1) < 0, (one - u + u * I(V)).hi, V)  # by symmetry
                bounds = np.maximum(bounds, np.minimum.reduce([step(m, place, V) for m in firsts[place]], initial=1.0))
        for t in orders:
            bound = (interval([(converted(state, t) + ball(t) * ball(h) / 2).exp()]) * powers(t, 0.0)[left : left + n + 1]).hi
            bounds = np.minimum(bounds, np.where(bound <= 1, bound, 1.0))
        rows[state] = bounds
    counts = tuple(count for *_, count in classes)
    final, orders = {tuple(state): (firsts, orders) for state, firsts, orders in f["states"]}[counts]
    def worth(m, place, v):
        x, _, _, a, b, terms = terms_of(m, place)
        y = ball(v) - ball(x)
        return ball(a) + ball(b) * y.exp() + sum((ball(g) * (limit(place, ball(e)) - ball(e) * y).exp() for e, g in terms), arb(0))
    def profile(v):
        near = [sorted(firsts, key=lambda m: abs(m[0] - v))[:4] for firsts in final]
        by_orders = [(converted(counts, t) - ball(t) * ball(v)).exp().upper() for t in orders]
        return min([max(min([arb(1), *(worth(m, place, v).upper() for m in found)]) for place, found in enumerate(near)), *by_orders])
    return symmetric(profile)
def basic(f):
    """Pure costs: no loss is above the sum of their epsilons."""
    need(all(kind in ("DP", "BR") for kind, *_ in f["costs"]), "a sum of epsilons is of pure costs")
    total = sum(Fraction(epsilon) * n for _, epsilon, n in f["costs"])
    return lambda x: arb(0) if x >= total else 1 - ball(x - total).exp()
def gaussian(mu):
    cdf = lambda z: (-z / arb(2).sqrt()).erfc() / 2  # not 1 + erf: e^x multiplies its error
    return lambda x: cdf(mu / 2 - ball(x) / mu) - ball(x).exp() * cdf(-mu / 2 - ball(x) / mu)
def of_sum(f, masses, first, infinite, loss):
    """Of f["count"] copies of a law on the integers, whose sum s has the exact, rising loss(s)."""
    whole(f["width"]), need(f["width"] <= LISTED, "a law too wide")
    total, start, infinite = power((fmpz_poly([integer(m) for m in masses]), first, infinite), f["count"], f["width"])
    losses = [loss(start + i) for i in range(len(total))]
    p, q = [arb(infinite)], [arb(0)]
    for m, x in zip(reversed(total.coeffs()), reversed(losses)):
        p.append(p[-1] + arb(m)), q.append(q[-1] + arb(m) * (-ball(x)).exp())
    def profile(x):
        j = len(losses) - bisect_left(losses, x)
        return (p[j] - ball(x).exp() * q[j]) / arb(ONE)
    return profile
def pure(f):
    lie = 1 / (1 + ball(f["epsilon"]).exp())
    return of_sum(f, [lie, 1 - lie], 0, fmpz(0), lambda s: (2 * s - f["count"]) * Fraction(f["epsilon"]))
def discrete_gaussian(f):
    """With s the sum of the noises turned round the loss is shift (2 s + count shift) / (2 scale^2)."""
    need(30 * f["scale"] <= LISTED, "a noise too wide")
    s, a, reach = Fraction(f["scale"]), f["shift"], math.ceil(30 * f["scale"])
    weights = [(-ball(Fraction(z * z) / (2 * s * s))).exp() for z in range(reach + 1)]
    tail = weights[-1] / (1 - (-ball(reach / (s * s))).exp())  # of one side, at least
    masses = [w / (2 * sum(weights, arb(0)) - 1) for w in weights]
    return of_sum(f, masses[:0:-1] + masses, -reach, integer(2 * tail), lambda y: a * (2 * y + f["count"] * a) / (2 * s * s))
gaussians = lambda f: gaussian(ball(f["mu"]) * ball(f["count"]).sqrt())  # all of them together are one
PROFILES = {"DP": pure, "GDP": gaussians, "DGauss": discrete_gaussian, "Renyi": renyi, "Smoothed": smoothed, "Basic": basic,
            "Moments": moments}
PARAMETERS = {"DP": ["epsilon"], "GDP": ["mu"], "DGauss": ["scale", "shift"]}
NUMBERS = r"[-+.\de]+(?:, (?:xi=)?[-+.\de]+)?"
TERM = rf"(?:(\d+)\*)?(\w+)\(({NUMBERS})\)"
def listed_in(f):
    """What a factor is made of: a kind, its numbers, a count."""
    if f["kind"] in PARAMETERS:
        return [(f["kind"], *(f[name] for name in PARAMETERS[f["kind"]]), f["count"])]
    return [("BR", epsilon, count) for epsilon, count in f["ranges"]] if f["kind"] == "BR" else f["costs"]
def same_charge(c):
    """What the text of the charge states, the factors, failures and bad events add up to."""
    listed, stated, text = {("delta",): Fraction(c["bad"])}, {}, c["charge"]
    def add(sums, key, amount):
        sums[key] = sums.get(key, 0) + amount
    for d, n in c["failures"]:
        add(listed, ("failure", Fraction(d)), n)
    for kind, *values, n in (cost for f in c["factors"] for cost in listed_in(f)):
        values = [Fraction(value) for value in values]
        if kind == "GDP":
            add(listed, ("GDP",), values[0] ** 2 * n)
        else:  # one by one: no sum of zCDP costs says what each of them is
            add(listed, (kind, *values), n)
    need(re.fullmatch(rf"0|{TERM}(?: \+ {TERM})*(?: \[[a-z_, ]+\])?", text), "the charge's text cannot be read")
    for times, name, arguments in re.findall(TERM, text):
        n, values = int(times or 1), [abs(Fraction(float(value.split("=")[-1]))) for value in arguments.split(",")]
        parts = {"delta": [((name, *values[1:]), values[0] * n)], "ADP": [(("DP", values[0]), n), (("failure", values[-1]), n)],
                 "GDP": [((name, *values[1:]), values[0] ** 2 * n)],
                 "ZCDP": [(("ZCDP", values[0], sum(values[1:])), n)]}  # fmt: skip
        for key, amount in parts.get(name, [((name, *values), n)]):
            add(stated, key, amount)
    worth = {key: amount for key, amount in stated.items() if key in (("delta",), ("GDP",)) or any(key[1:])}  # DP(0) is nothing
    need(all(listed.get(key, 0) >= amount for key, amount in worth.items()), "the text states more than the factors")
integer = lambda x: max(fmpz(0), (x * arb(ONE)).upper().ceil().unique_fmpz())
def pair(profile, step, first, last):
    """Integer masses under P at the losses first..last (in steps), and at infinity: u times the changes of slope."""
    points, masses = [(arb(0), arb(1), first)], [fmpz(0)] * (last - first + 1)
    slope = lambda one, other: (other[1] - one[1]) / (other[0] - one[0])
    for j in range(first, last + 1):  # chords between fewer points bound a convex function too: those above are left out
        here = (ball(step) * j).exp(), min(arb(1), arb(profile(step * j).upper())), j
        while len(points) > 1 and slope(points[-2], points[-1]) > slope(points[-1], here):
            points.pop()
        points.append(here)
    slopes = [*(slope(*ends) for ends in zip(points, points[1:])), arb(0)]
    for (u, _, j), before, after in zip(points[1:], slopes, slopes[1:]):
        masses[j - first] = integer((after - before) * u)
    return fmpz_poly(masses), first, integer(points[-1][1])
def times(one, other, width):
    c = [(x >> BITS) + 1 for x in (one[0] * other[0]).coeffs()]
    drop = max(0, len(c) - width)
    while drop and sum(c[-drop:]) > (ONE >> 60):
        drop //= 2
    infinite, c = one[2] + other[2] + sum(c[len(c) - drop :]), c[: len(c) - drop]
    drop = max(0, len(c) - width)
    return fmpz_poly([sum(c[: drop + 1]), *c[drop + 1 :]]), one[1] + other[1] + drop, infinite
def power(square, k, width):
    total = (fmpz_poly([ONE]), 0, fmpz(0))
    while k:
        total = times(total, square, width) if k & 1 else total
        k, square = k >> 1, times(square, square, width) if k > 1 else square
    return total
def verify(path):
    with open(path, encoding="utf-8") as file:
        c = json.load(file)
    need(c.get("format") in (4, 5, 6), f"a file of format {c.get('format')}; this program reads formats 4 to 6")
    number(c["epsilon"]), number(c["bad"], c["delta"], *(d for d, _ in c["failures"]), most=1), whole(*(n for _, n in c["failures"]))
    step, x, total, costs = Fraction(c["step"]), ball(c["epsilon"]), (fmpz_poly([ONE]), 0, fmpz(0)), []
    need(step > 0, "the lattice's step must be above 0"), whole(c["width"]), need(c["width"] <= LARGEST, "a lattice too wide")
    for f in c["factors"]:
        for kind, *values, count in listed_in(f):
            number(*values), whole(count, *(values[1:] if kind == "DGauss" else []))
            costs.append(f"{count} {kind} {' '.join(map(str, values))}")
    alone = len(c["factors"]) == 1 and c["factors"][0]["kind"] != "BR" and "low" not in c["factors"][0]
    if alone:
        profile = PROFILES[c["factors"][0]["kind"]](c["factors"][0] | {"at": c["epsilon"]})
        rest = min(arb(1), arb(profile(Fraction(c["epsilon"])).upper()))
    for f in [] if alone else c["factors"]:
        need(type(f["low"]) is type(f["high"]) is int and 0 <= f["high"] - f["low"] <= LARGEST, "ends of a lattice")
        # Only ranges may be multiplied fewer times than there are of them: parts of ``size`` of them are groups.
        profiles = bounded_range(f) if f["kind"] == "BR" else [(PROFILES[f["kind"]](f), 1)]
        for profile, k in profiles:
            total = times(total, power(pair(profile, step, f["low"], f["high"]), k, c["width"]), c["width"])
    same_charge(c)
    if not alone:
        gains = ((m, 1 - (x - ball(step) * (total[1] + i)).exp()) for i, m in enumerate(total[0].coeffs()))
        rest = (arb(total[2]) + sum((arb(m) * g for m, g in gains if not g <= 0), arb(0))) / arb(ONE)
    fails = -sum(((-ball(d)).log1p() * n for d, n in c["failures"]), arb(0)).expm1()  # 1 - the product of all 1 - d
    delta = ball(c["bad"]) + fails + (1 - fails) * rest  # no difference of numbers near 1: the smallest deltas keep their digits
    need(delta.upper() <= ball(c["delta"]), f"delta is only bounded by {delta.upper()}")
    print("valid:", "; ".join(costs), f"and {c['failures']}, {c['bad']}: ({c['epsilon']}, {c['delta']})-DP, {delta.upper()}")
def main(path):
    try:
        verify(path)
    except (ArithmeticError, LookupError, MemoryError, OSError, RecursionError, TypeError, ValueError, AttributeError, zlib.error) as error:
        sys.exit(f"refused: not a certificate ({type(error).__name__}: {error})")
if __name__ == "__main__":
    main(sys.argv[1])
