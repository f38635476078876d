"""Differentially private top-k queries on histograms, with privacy accounting built in.

Every public name is loaded when it is first used, so that ``import dptopk`` costs little more than
``import numpy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dptopk.accounting import Bound as Bound, calibrate as calibrate, compose as compose
    from dptopk.budgets import Accountant as Accountant
    from dptopk.costs import (
        CDP as CDP,
        ZCDP as ZCDP,
        ApproxDP as ApproxDP,
        BoundedRange as BoundedRange,
        Budget as Budget,
        Charge as Charge,
        DiscreteGaussianDP as DiscreteGaussianDP,
        DiscreteLaplaceDP as DiscreteLaplaceDP,
        GaussianDP as GaussianDP,
        MultiDP as MultiDP,
        PureDP as PureDP,
    )
    from dptopk.errors import (
        BudgetExceeded as BudgetExceeded,
        DptopkError as DptopkError,
        IncompatibleCosts as IncompatibleCosts,
        InvalidParameter as InvalidParameter,
        LedgerError as LedgerError,
        NotCertified as NotCertified,
    )
    from dptopk.histogram.histogram import Histogram as Histogram, Sensitivity as Sensitivity
    from dptopk.ledger import Ledger as Ledger
    from dptopk.mechanisms import (
        Box as Box,
        CanonicalTopK as CanonicalTopK,
        Centred as Centred,
        CountMLE as CountMLE,
        Exponential as Exponential,
        JointTopK as JointTopK,
        KnownGaussian as KnownGaussian,
        KnownGumbel as KnownGumbel,
        KnownLaplace as KnownLaplace,
        OneShotTopK as OneShotTopK,
        PartitionSelection as PartitionSelection,
        RoutedTopK as RoutedTopK,
        TruncatedGaussian as TruncatedGaussian,
        UnknownGaussian as UnknownGaussian,
        UnknownGumbel as UnknownGumbel,
        UnknownLaplace as UnknownLaplace,
    )
    from dptopk.planning import (
        Plan as Plan,
        plan_continual as plan_continual,
        plan_topk as plan_topk,
    )
    from dptopk.release.release import Release as Release
    from dptopk.session.client import Client as Client
    from dptopk.session.one_call import top_k as top_k
    from dptopk.session.session import Session as Session
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".accounting": "Bound calibrate compose",
            ".budgets": "Accountant",
            ".costs": "ApproxDP BoundedRange Budget CDP Charge DiscreteGaussianDP "
            "DiscreteLaplaceDP GaussianDP MultiDP PureDP ZCDP",
            ".errors": "BudgetExceeded DptopkError IncompatibleCosts InvalidParameter "
            "LedgerError NotCertified",
            ".histogram.histogram": "Histogram Sensitivity",
            ".ledger": "Ledger",
            ".mechanisms": "Box CanonicalTopK Centred CountMLE Exponential JointTopK KnownGaussian "
            "KnownGumbel KnownLaplace OneShotTopK PartitionSelection RoutedTopK "
            "TruncatedGaussian UnknownGaussian UnknownGumbel UnknownLaplace",
            ".planning": "Plan plan_continual plan_topk",
            ".release.release": "Release",
            ".session.client": "Client",
            ".session.one_call": "top_k",
            ".session.session": "Session",
        },
    )
