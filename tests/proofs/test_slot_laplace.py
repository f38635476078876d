"""What proofs/Laplace.v and Release.v state of discrete Laplace noise, beside the library's numbers:
the formulas are read from the Coq text.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from dptopk import Sensitivity, UnknownLaplace
from dptopk._internal.tails import laplace_difference_tail
from dptopk.mechanisms.thresholds import moving_slots, special_slots

PROOFS = Path(__file__).parents[2] / "proofs"


def formula(file, name, *arguments):
    """The body of a definition in Coq as a function of numbers."""
    text = (PROOFS / file).read_text(encoding="utf-8")
    (body,) = re.findall(
        rf"^Definition {name}\b[^\n]*?:=\s+(.*?)\.$", text, re.MULTILINE | re.DOTALL
    )
    # One after another: casts, successors, powers of reals and of their inverses, minima.
    for coq, python in (
        (r"%:R|%N|%:Z", ""),
        (r"\b(\w+)\.\+1", r"(\1 + 1)"),
        (r"a \^- ", "a ** -"),
        (r"\^\+", "**"),
        (r"`\|(\w+)\|", r"abs(\1)"),
        (r"minn (\w+) (\w+|\(\w+ \+ 1\))", r"min(\1, \2)"),
    ):
        body = re.sub(coq, python, body)
    code = compile(" ".join(body.split()), name, "eval")

    def value(*values):
        return eval(code, {}, dict(zip(arguments, values, strict=True)))  # noqa: S307

    return value


laplace = formula("Laplace.v", "laplace", "a", "z")
tail = formula("Laplace.v", "tail", "a", "c")
copies = formula("Release.v", "copies", "Delta", "d")
ratio = formula("Release.v", "ratio", "a", "copies", "tau")


@pytest.mark.parametrize("a", [Fraction(1, 3), Fraction(9, 10)], ids=str)
@pytest.mark.parametrize("c", [0, 1, 7])
def test_the_tail_is_the_sum_of_the_mass_function(a, c):
    far = 400 if a > Fraction(1, 2) else 60
    masses = [laplace(a, z) for z in range(-far, far + 1)]
    assert 1 - sum(masses) < Fraction(1, 10**12)
    above = Fraction(0)
    total = Fraction(0)
    for z in range(far, -far - 1, -1):  # above: the mass of all that is more than z + c
        if -far <= z + c + 1 <= far:
            above += masses[z + c + 1 + far]
        total += masses[z + far] * above
    assert total <= tail(a, c) <= total + Fraction(1, 10**12)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("c", [0, 5, 100])
def test_the_library_has_the_same_tail(epsilon, c):
    exact = tail(math.exp(-epsilon), c)
    assert exact * (1 - 1e-12) <= laplace_difference_tail(epsilon, c) <= exact * (1 + 1e-6)


@pytest.mark.parametrize(("l0", "d_bar", "linf"), [(1, 5, 1), (3, 2, 2), (4, 9, 3)])
def test_the_mechanism_is_charged_what_coq_proves(l0, d_bar, linf):
    """As many copies, of e^ε = a^-τ each; and a threshold at which the union bound is no less than
    the δ that is reached.
    """
    sensitivity = Sensitivity(linf=linf, l0=l0)
    assert copies(l0, d_bar) == moving_slots(sensitivity, d_bar)
    mechanism = UnknownLaplace(d_bar=d_bar, epsilon=0.5, delta=1e-6)
    a = math.exp(-0.5 / linf)
    assert ratio(a, copies(l0, d_bar), linf) == pytest.approx(math.exp(0.5 * copies(l0, d_bar)))
    special = special_slots(sensitivity, d_bar)
    c = mechanism.threshold_offset(sensitivity) - linf
    one_less = special * tail(a, c - 1)
    assert one_less > 1e-6  # the union bound never allows a lower threshold than the library's
    if special == 1:
        assert tail(a, c) <= 1e-6
