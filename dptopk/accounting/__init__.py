"""Privacy accounting: composition bounds, the accountant, calibration and the ledger."""

from dptopk.accounting.bounds import compose as compose
from dptopk.accounting.calibration import calibrate as calibrate
from dptopk.accounting.registry import Bound as Bound
