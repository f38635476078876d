"""Accounts of a budget: registrations with their tokens, filters with their metrics, shares of
analysts, segments.
"""

from dptopk.budgets.account_base import Account as Account, Summary as Summary
from dptopk.budgets.filter import Filter as Filter
from dptopk.budgets.parallel import Parallel as Parallel, segments_charge as segments_charge
from dptopk.budgets.registered_account import Accountant as Accountant
from dptopk.budgets.remaining import Remaining as Remaining
from dptopk.budgets.shares import Shares as Shares
