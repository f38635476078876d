"""Differentially private top-k queries on histograms, with privacy accounting built in.

Every public name is loaded when it is first used, so that ``import dptopk`` costs little more than ``import numpy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._lazy import attach

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dptopk.accounting import (
        Accountant as Accountant,
        Bound as Bound,
        Budget as Budget,
        Filter as Filter,
        Ledger as Ledger,
        calibrate as calibrate,
        compose as compose,
    )
    from dptopk.client import Client as Client
    from dptopk.costs import (
        CDP as CDP,
        ZCDP as ZCDP,
        ApproxDP as ApproxDP,
        BoundedRange as BoundedRange,
        Charge as Charge,
        Cost as Cost,
        DiscreteGaussianDP as DiscreteGaussianDP,
        DiscreteLaplaceDP as DiscreteLaplaceDP,
        ExponentialClockDP as ExponentialClockDP,
        GaussianDP as GaussianDP,
        LabelCoinsDP as LabelCoinsDP,
        MultiDP as MultiDP,
        PureDP as PureDP,
        SparseGaussianDP as SparseGaussianDP,
    )
    from dptopk.errors import (
        BudgetExceeded as BudgetExceeded,
        DptopkError as DptopkError,
        IncompatibleCosts as IncompatibleCosts,
        InvalidParameter as InvalidParameter,
        LedgerError as LedgerError,
        NotCertified as NotCertified,
        ReleaseWithheld as ReleaseWithheld,
    )
    from dptopk.histogram import Histogram as Histogram, Sensitivity as Sensitivity
    from dptopk.mechanisms import (
        Box as Box,
        CanonicalTopK as CanonicalTopK,
        Centred as Centred,
        ContinualTopK as ContinualTopK,
        CountMLE as CountMLE,
        Exponential as Exponential,
        JointTopK as JointTopK,
        KnownGaussian as KnownGaussian,
        KnownGumbel as KnownGumbel,
        KnownLaplace as KnownLaplace,
        OneShotTopK as OneShotTopK,
        PartitionSelection as PartitionSelection,
        RoutedTopK as RoutedTopK,
        SparseGaussian as SparseGaussian,
        StabilityTopK as StabilityTopK,
        TruncatedGaussian as TruncatedGaussian,
        TruncatedLaplace as TruncatedLaplace,
        UnknownGaussian as UnknownGaussian,
        UnknownGumbel as UnknownGumbel,
        UnknownLaplace as UnknownLaplace,
    )
    from dptopk.planning import Plan as Plan, plan_continual as plan_continual, plan_topk as plan_topk
    from dptopk.release import Release as Release
    from dptopk.session import Session as Session
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".accounting": "Accountant Bound Budget Filter Ledger calibrate compose",
            ".client": "Client",
            ".costs": (
                "CDP ZCDP ApproxDP BoundedRange Charge Cost DiscreteGaussianDP DiscreteLaplaceDP "
                "ExponentialClockDP GaussianDP LabelCoinsDP MultiDP PureDP SparseGaussianDP"
            ),
            ".errors": (
                "BudgetExceeded DptopkError IncompatibleCosts InvalidParameter LedgerError NotCertified ReleaseWithheld"
            ),
            ".histogram": "Histogram Sensitivity",
            ".mechanisms": (
                "CanonicalTopK Centred ContinualTopK CountMLE Exponential JointTopK KnownGaussian KnownGumbel "
                "KnownLaplace OneShotTopK PartitionSelection RoutedTopK SparseGaussian StabilityTopK "
                "TruncatedGaussian TruncatedLaplace UnknownGaussian UnknownGumbel UnknownLaplace"
            ),
            ".planning": "Plan plan_continual plan_topk",
            ".release": "Release",
            ".session": "Session",
        },
    )
