"""Check a certificate of dptopk: python check_certificate.py FILE. Needs numpy and python-flint, nothing of dptopk.
Claimed: whoever may spend the listed costs, in any order, adaptively, is (epsilon, delta)-DP. Checked by a product of pairs
(docs/notes/certificates.md): all that can be done with a group of costs is dominated by one pair of laws, given by its profile
H(u) = sup_S P(S) - u Q(S), convex and decreasing in u = e^x. Node values joined by chords are the profile of a pair.
  BR(epsilon), in groups: the file holds node values V of each multiset that may be left. V must bound, for each range in it, the
         sup over a <= u <= a e^epsilon of the chord between a and a e^epsilon, at u, of V of the multiset without that range.
  others: the profile in closed form.
On the common lattice masses are rounded up to integers / 2^BITS and multiplied as polynomials; what is cut off moves up.
All numbers are balls (flint) or intervals (numpy, one float outward after each operation)."""

import base64, json, math, re, sys, zlib
from fractions import Fraction
import numpy as np
from flint import arb, ctx, fmpq, fmpz, fmpz_poly
ctx.prec, BITS = 160, 128
ONE = fmpz(1) << BITS
def need(truth, what):  # an assert would be gone under python -O
    if not truth:
        sys.exit(f"refused: {what}")
def whole(*values):
    need(all(type(x) is int and x >= 1 for x in values), "counts must be integers from 1 on")
def number(*values, most=math.inf):
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
    def sqrt(a):  # of the part from 0 on
        return I.out(np.sqrt(a.positive().lo), np.sqrt(a.positive().hi))
def check_step(h, new, u, e, n):
    """The nodes ``new`` bound the step of the chords through h; u and h have n more nodes on each side, e^epsilon = u[n]/u[0]."""
    one, size = I(1.0), len(new)
    b = (h[1:] - h[:-1]) / (u[1:] - u[:-1])
    a, mid, best = h[:-1] - b * u[:-1], u[n : n + size], np.maximum((one - u[n : n + size]).hi, 0)
    for c in range(n):  # s in cell c left of u, where h(s) = a + b s, and h(s e) = g + d s: a maximum of t - p s - q/s
        k, r, x, y = slice(c, c + size), slice(c + n, c + n + size), u[c : c + size], u[c + 1 : c + 1 + size]
        g, d = a[r], b[r] * e
        p, q, t = d - b[k] * e, (a[k] - g) * mid, e * a[k] - b[k] * mid - g + d * mid
        ends = np.maximum((t - p * x - q / x).hi, (t - p * y - q / y).hi)
        may = (p.hi > 0) & (q.hi > 0) & (q.hi >= (p.positive() * x * x).lo) & (q.lo <= (p.positive() * y * y).hi)
        inner, w = (t - I(2.0) * (p.positive() * q.positive()).sqrt()).hi, I(x.lo, y.hi)
        inner = np.where(may, np.minimum(inner, (t - p * w - q / w).hi), -np.inf)
        best = np.maximum(best, (I(np.maximum(np.maximum(ends, inner), 0)) / (e - one)).hi)
    need(np.all(new >= best), "a node value is below the step")
def extended(row, u, first, last):
    """The chords through node values (start, values) at more nodes: from (0, 1) on the left, a constant on the right."""
    (start, v), one = row, I(1.0)
    left = one + (I(v[0]) - one) / u[start] * u[first:start] if first < start else I(v[:0])
    v, size = v[max(first - start, 0) : last - start], max(last - max(first, start + len(v)), 0)
    return I(*(np.concatenate([side, v, np.full(size, row[1][-1])]) for side in (left.lo, left.hi)))
def bounded_range(f):
    """For each state, so many ranges of each kind that are left, node values that bound the steps to all states with one less."""
    step, steps, rows, at = Fraction(f["step"]), [n for _, _, n in f["ranges"]], {}, 0
    whole(*steps, *(power for _, power in f["parts"])), number(*(part for size, _ in f["parts"] for part in size))
    need(step > 0 and all(step * n >= Fraction(e) for e, _, n in f["ranges"]), "a range larger than its steps")
    for j, (_, count, _) in enumerate(f["ranges"]):
        need(sum(size[j] * power for size, power in f["parts"]) >= count, "the groups are fewer than the count")
    low = min(first for _, first, _ in f["rows"]) - max(steps)
    nodes = [(ball(step) * j).exp() for j in range(low, max(first + size for _, first, size in f["rows"]) + max(steps))]
    u = I.out([float(x.lower()) for x in nodes], [float(x.upper()) for x in nodes])
    stored = np.frombuffer(zlib.decompress(base64.b64decode(f["values"])))
    need(np.all(np.isfinite(stored)) and np.all(stored >= 0), "node values must be finite, from 0 on")
    for state, first, size in f["rows"]:
        number(*state), whole(size - 1)
        new, start, at = stored[at : at + size], first - low, at + size
        need(np.all(new >= (I(1.0) - u[start : start + size]).hi), "a node value of nothing is too low")
        for j in (j for j, left in enumerate(state) if left):
            n, before = steps[j], tuple(left - (i == j) for i, left in enumerate(state))
            need(before in rows, "a state without the one before it")
            e, first, last = (ball(step) * n).exp(), start - n, start + size + n
            check_step(extended(rows[before], u, first, last), new, u[first:last], I.out(float(e.lower()), float(e.upper())), n)
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
    return [(profile(rows[tuple(size)]), power) for size, power in f["parts"]]
symmetric = lambda profile: lambda x: profile(x) if x >= 0 else 1 - ball(x).exp() + ball(x).exp() * profile(-x)
def zcdp(f):
    xi, rho = ball(f["xi"]), ball(f["rho"])
    def conversion(x):  # Canonne-Kamath-Steinke 2020, Proposition 12: any order is valid, floats look for a good one
        lam = np.geomspace(1e-3, 1e4, 2000)
        for _ in range(2):
            log = lam * (f["xi"] + f["rho"] * (1 + lam) - float(x)) - (1 + lam) * np.log1p(1 / lam) - np.log(lam)
            best = float(lam[np.argmin(log)])
            lam = best * np.geomspace(0.99, 1.01, 101)
        a = 1 + ball(best)
        return min(arb(1), (((a - 1) * (xi + rho * a - ball(x))).exp() / (a - 1) * (1 - 1 / a) ** a).upper())
    return symmetric(conversion)
def gaussian(f):  # all of them together are one Gaussian
    mu, cdf = ball(f["mu"]) * ball(f["count"]).sqrt(), lambda z: (1 + (z / arb(2).sqrt()).erf()) / 2
    return lambda x: cdf(mu / 2 - ball(x) / mu) - ball(x).exp() * cdf(-mu / 2 - ball(x) / mu)
def pure(f):
    e = ball(f["epsilon"]).exp()
    return lambda x: max([arb(0), 1 - ball(x).exp(), (e - ball(x).exp()) / (1 + e)], key=lambda v: v.upper())
def discrete_gaussian(f):
    """The best event is noise <= c, c the last integer of loss shift (shift - 2c) / (2 scale^2) >= x: log-concave weights."""
    s, a, reach = Fraction(f["scale"]), f["shift"], math.ceil(30 * f["scale"]) + f["shift"]
    cdf = [arb(0)]
    for z in range(-reach, reach + 1):
        cdf.append(cdf[-1] + (-ball(Fraction(z * z) / (2 * s * s))).exp())
    tail = (-ball(Fraction(reach * reach) / (2 * s * s))).exp() / (1 - (-ball(reach / (s * s))).exp())  # of one side
    below = lambda c: cdf[min(max(c + reach + 1, 0), 2 * reach + 1)]
    def profile(x):
        c = math.floor((a * a - 2 * s * s * x) / (2 * a))
        return max(arb(0), ((below(c) + 2 * tail - ball(x).exp() * below(c - a)) / cdf[-1]).upper())
    return profile
PROFILES = {"DP": pure, "GDP": gaussian, "DGauss": discrete_gaussian, "ZCDP": zcdp}
PARAMETERS = {"BR": [], "DP": ["epsilon"], "GDP": ["mu"], "DGauss": ["scale", "shift"], "ZCDP": ["xi", "rho"]}
TERM = r"(?:(\d+)\*)?(\w+)\(([^()]*)\)"
def same_charge(c):
    """What the text of the charge states, the factors, failures and bad events add up to."""
    listed, stated, text = {("delta",): Fraction(c["bad"])}, {}, c["charge"]
    def add(sums, key, amount):
        sums[key] = sums.get(key, 0) + amount
    for d, n in c["failures"]:
        add(listed, ("failure", Fraction(d)), n)
    for f in c["factors"]:
        values = [Fraction(f[name]) for name in PARAMETERS[f["kind"]]]
        for epsilon, count, _ in f.get("ranges", []) if f["kind"] == "BR" else []:
            add(listed, ("BR", Fraction(epsilon)), count)
        if f["kind"] == "ZCDP":
            add(listed, ("xi",), values[0] * f["count"]), add(listed, ("rho",), values[1] * f["count"])
        elif f["kind"] != "BR":
            add(listed, (f["kind"], *values), f["count"])
    need(re.fullmatch(rf"0|{TERM}(?: \+ {TERM})*(?: \[[a-z_, ]+\])?", text), "the charge's text cannot be read")
    for times, name, arguments in re.findall(TERM, text):
        n, values = int(times or 1), [Fraction(float(value.split("=")[-1])) for value in arguments.split(",")]
        parts = {"delta": [((name,), values[0] * n)], "ADP": [(("DP", values[0]), n), (("failure", values[-1]), n)],
                 "ZCDP": [(("rho",), values[0] * n), (("xi",), sum(values[1:]) * n)]}  # fmt: skip
        for key, amount in parts.get(name, [((name, *values), n)]):
            add(stated, key, amount)
    need(all(listed.get(key, 0) >= amount for key, amount in stated.items()), "the text states more than the factors")
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
def main(path):
    c = json.load(open(path, encoding="utf-8"))
    number(c["epsilon"]), number(c["bad"], c["delta"], *(d for d, _ in c["failures"]), most=1), whole(*(n for _, n in c["failures"]))
    step, x, total, costs = Fraction(c["step"]), ball(c["epsilon"]), (fmpz_poly([ONE]), 0, fmpz(0)), []
    need(step > 0, "the lattice's step must be above 0")
    for f in c["factors"]:
        values = [f[name] for name in PARAMETERS[f["kind"]]]
        if f["kind"] == "BR":
            number(*(e for e, _, _ in f["ranges"])), whole(*(count for _, count, _ in f["ranges"]))
            costs += [f"{count} BR {epsilon}" for epsilon, count, _ in f["ranges"]]
        else:
            number(*values), whole(f["count"], f.get("shift", 1))
            costs.append(f"{f['count']} {f['kind']} {' '.join(map(str, values))}")
        # Only ranges may be multiplied fewer times than there are of them: parts of ``size`` of them are groups.
        profiles = bounded_range(f) if f["kind"] == "BR" else [(PROFILES[f["kind"]](f), 1 if f["kind"] == "GDP" else f["count"])]
        for profile, k in profiles:
            square = pair(profile, step, f["low"], f["high"])
            while k:
                total = times(total, square, c["width"]) if k & 1 else total
                k, square = k >> 1, times(square, square, c["width"]) if k > 1 else square
    same_charge(c)
    gains = ((m, 1 - (x - ball(step) * (total[1] + i)).exp()) for i, m in enumerate(total[0].coeffs()))
    rest = (arb(total[2]) + sum((arb(m) * g for m, g in gains if not g <= 0), arb(0))) / arb(ONE)
    survive = math.prod([(1 - ball(d)) ** n for d, n in c["failures"]], start=arb(1))
    delta = ball(c["bad"]) + 1 - survive * (1 - rest)
    need(delta.upper() <= ball(c["delta"]), f"delta is only bounded by {delta.upper()}")
    print("valid:", "; ".join(costs), f"and {c['failures']}, {c['bad']}: ({c['epsilon']}, {c['delta']})-DP, {delta.upper()}")
if __name__ == "__main__":
    main(sys.argv[1])
