"""The ledger: every charge on disk before its answer exists."""

from dptopk.ledger.disclosure import statement as statement
from dptopk.ledger.ledger import Ledger as Ledger
from dptopk.ledger.spends import Receipt as Receipt
