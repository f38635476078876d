"""Private mechanisms; each states its charge before it sees any data."""

from dptopk.mechanisms.box import Box as Box
from dptopk.mechanisms.canonical import CanonicalTopK as CanonicalTopK
from dptopk.mechanisms.centred import Centred as Centred
from dptopk.mechanisms.continual import ContinualTopK as ContinualTopK
from dptopk.mechanisms.count_mle import CountMLE as CountMLE
from dptopk.mechanisms.exponential import Exponential as Exponential
from dptopk.mechanisms.gaussian import (
    KnownGaussian as KnownGaussian,
    TruncatedGaussian as TruncatedGaussian,
    UnknownGaussian as UnknownGaussian,
)
from dptopk.mechanisms.gaussian_counts import GaussianCounts as GaussianCounts
from dptopk.mechanisms.gumbel import KnownGumbel as KnownGumbel, UnknownGumbel as UnknownGumbel
from dptopk.mechanisms.joint import JointTopK as JointTopK
from dptopk.mechanisms.laplace import KnownLaplace as KnownLaplace, UnknownLaplace as UnknownLaplace
from dptopk.mechanisms.one_shot import OneShotTopK as OneShotTopK
from dptopk.mechanisms.partition_selection import PartitionSelection as PartitionSelection
from dptopk.mechanisms.router import RoutedTopK as RoutedTopK
from dptopk.mechanisms.sparse_gaussian import SparseGaussian as SparseGaussian
from dptopk.mechanisms.stability import StabilityTopK as StabilityTopK
from dptopk.mechanisms.truncated_laplace import TruncatedLaplace as TruncatedLaplace
from dptopk.mechanisms.unknown_box import UnknownBox as UnknownBox
from dptopk.mechanisms.unknown_centred import UnknownCentred as UnknownCentred
from dptopk.mechanisms.weighted_gaussian import WeightedGaussian as WeightedGaussian
