"""Laws of a loss that are listed loss by loss."""

from fractions import Fraction

import numpy as np

from dptopk.accounting.pld.laws import LossLaw, product


def test_the_error_of_a_product_covers_the_rounding_of_its_masses():
    """Exact masses, whose products are rounded by up to half an ulp."""
    rng = np.random.default_rng(5)
    laws = [
        LossLaw(losses=np.arange(40.0), masses=rng.random(40), mass_error=0.0, loss_error=0.0)
        for _ in range(2)
    ]
    first, second = laws
    found = product(first, second)
    computed = np.multiply.outer(first.masses, second.masses).ravel()
    exact = [Fraction(p) * Fraction(q) for p in first.masses for q in second.masses]
    errors = [abs(Fraction(p) - q) / q for p, q in zip(computed, exact, strict=True)]
    assert sorted(found.masses) == sorted(computed)
    assert 0 < max(errors) <= Fraction(found.mass_error)
