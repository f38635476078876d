"""The closed sets of words that arguments take, each written once: for type checkers, messages, the
command line.
"""

from __future__ import annotations

from typing import Literal, get_args

# Neighbouring data sets: one user comes or goes, or one user's data is replaced.
Neighbours = Literal["add_remove", "replace_one"]
# Where labels come from: the data (which labels exist is secret), or a list that is known to all.
Domain = Literal["private", "public"]
# Who chooses, and when, from the weakest to the strongest analyst (docs/theorems.md): a bound that
# is valid in one is valid in all before it.
Interaction = Literal["batch", "ordered", "setwise", "filter"]
# The noise on released counts; "auto": whichever is best; "none": labels only.
Counts = Literal["auto", "gaussian", "laplace", "box", "none"]
# What a Gumbel top-k pays for: its selections, or the clocks that a user can change.
ChargeAs = Literal["bounded_range", "clocks"]
# How the top k are found: select, then count; noise on all counts; or all labels drawn at once.
Method = Literal["auto", "peel", "threshold", "whole"]
# How two phases find labels (docs/architecture.md, "To add a way to find labels"): by noisy sums of
# weights or noisy counts over a threshold, by coins, or by selections from all events.
Finder = Literal["weights", "threshold", "coins", "uncapped"]
# How a user states it: "auto": weights or counts; "counts": coins, or a threshold.
FindBy = Literal["auto", "counts", Finder]
# A private look before the plan: "auto": one if it is worth its cost; a number in (0, 1): one for
# this share of ε; None: no look.
LookShare = Literal["auto"] | float | None
# How much work a bound may take: about a quarter of a second, a few seconds, half a minute of one
# processor.
Effort = Literal["quick", "normal", "thorough"]
# What a set of confidence intervals promises: for all rows at once, for the share of rows missed,
# or for a named row.
Intervals = Literal["simultaneous", "fcr", "row"]

# The confidence of intervals and error bars, and the share of the noise within a half-width, where
# none is asked for.
CONFIDENCE = 0.95

NEIGHBOURS: tuple[Neighbours, ...] = get_args(Neighbours)
DOMAINS: tuple[Domain, ...] = get_args(Domain)
INTERACTIONS: tuple[Interaction, ...] = get_args(Interaction)
CHARGES: tuple[ChargeAs, ...] = get_args(ChargeAs)
COUNTS: tuple[Counts, ...] = get_args(Counts)
FIND: tuple[FindBy, ...] = get_args(FindBy)
METHODS: tuple[Method, ...] = get_args(Method)
EFFORTS: tuple[Effort, ...] = get_args(Effort)
INTERVALS: tuple[Intervals, ...] = get_args(Intervals)
