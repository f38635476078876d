"""Privacy accounting: composition bounds, conversions between costs, calibration and
certificates.
"""

from dptopk.accounting.bounds import compose as compose
from dptopk.accounting.calibration import calibrate as calibrate
from dptopk.accounting.registry import Bound as Bound
