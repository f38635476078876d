"""Privacy accounting: composition bounds, the accountant, calibration and the ledger."""
