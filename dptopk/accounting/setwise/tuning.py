"""Guesses: how much is tried, how finely, how long. Soundness depends on none of them.

Whatever stands here, an upper bound stays above and a lower bound below the truth
(docs/notes/setwise.md; the tests change them and look); only how close they come, and how long that
takes, is at stake. The values were found by trial on the registrations of
benchmarks/bench_setwise.py. What soundness does depend on stands, with its reason, where it is
used.
"""

from __future__ import annotations

# A *run* is one evaluation of a question (``evaluation``) to a tolerance, relative, of ε. Work is
# in seconds. A deviation is the standard deviation of a loss.

# ---- optimum: runs of an answer, each finer than the last

# Tolerances.
LOOSEST = 0.01  # the loosest that is aimed at
FINEST = 1e-7  # the finest that is aimed at
COARSEST = 0.1  # the coarsest of a run, where work is short
FIRST_SHARE = 0.5  # of the tolerance asked for: that of the first run, if it fits in the stage
# The next run aims at this share of the width asked for, and is finer by at least FINER and at most
# 1 / LEAP.
AIM = 0.8
LEAP = 0.05
FINER = 2.5
COARSER = 1.25  # a run is worth its time if it is finer than the last by this factor
STUCK = 0.85  # no further run where the last left the bracket at more than this share of its width
# A strategy is evaluated again if the bracket is at most this many times as wide as the tolerance
# of the last one.
LOWER_AGAIN = 10.0
GROUPS_SHARE = 0.9  # of what is left of a stage, that the groups of a run may take

# The lattice of the product.
LATTICE_SHARE = 0.05  # of the tolerance, that it may use
MOST_POINTS = 2**19  # its length at most
WINDOW = 30.0  # deviations that it holds
CELLS_PER_STD = 4.0  # a cell is at most one over this of a deviation
SPLITTING = 5.0  # splitting in cells costs less of the tolerance than their width, by this factor
WORK_PER_FACTOR = 5e-4  # of a product
WORK_PER_CURVE = 0.2  # of the curve of concentrated costs
WORK_PER_PLACE = 5e-7  # of its lattice, if that has the steps of the groups
WORK_PER_LATTICE_POINT = 1e-5  # of a wide discrete Gaussian, whose lattice is split for every grid

# The reach of groups.
WINDOW_SHARE = 1e-5  # of δ: what lies beyond a group's window is worth that
REACHES = 0.5  # deviations, of which a reach is a multiple, so that groups can be used again
GUESS_ABOVE_DELTA = 100  # where δ is asked for, its guess is taken to be at most so much too large

# The Rényi route.
ORDERS = 60  # orders of the grid in which the best one is looked for
FEW_ORDERS = 12  # the same where there are very many different costs
ZOOMS = 5  # how often the grid is refined about the best one
MOST_RANGES = 200  # more different ranges are rounded to about this many
CONCENTRATED_REACH = 8.0  # deviations of the curve of concentrated costs beyond what is asked
CONCENTRATED_POINTS = 2**15  # of that curve, at most

# Gaussians for small costs.
# The conversion of zCDP costs is worth about a Gaussian with this multiple of the variance 2 Σ ρ.
SMOOTHED = 1.15
SMOOTHED_CUTS = 10  # cuts between small costs and others: the largest ρ, halved up to this often
FEWEST_REDUCED = 2  # of so many different ranges the small ones are tried as one Gaussian,
MOST_LEFT = 12  # beside at most so many large ones,
CUTS = 2  # for so many numbers of large ones, which look best,
REDUCED_SHARE = 0.3  # each in this share of a stage;
CHEAP_SHARE = 0.05  # one that takes less than this is tried even where groups look better

# Lower bounds.
STRATEGY_REACH = 5.0  # deviations below the upper bound up to which a strategy's ε is looked for
SETTLED = 4.0  # tolerances: once a strategy is so close to the upper bound, no other is tried
LEAST_VARIANCE = 1e-6  # the variance under the tilt, as a share of that without it, at least
# How far below the upper bound, relatively, a lower bound on one concentrated cost is tried.
CONCENTRATED_RETREATS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)

# ---- partition: groups and their grids

# What is added to the variance of the loss (docs/notes/setwise.md).
GROUP = 0.19  # in units of ε², by a further group whose largest range is ε,
GROUP_HALF_COUNT = 1.2  # less by m/(m + this) where it has only m costs of each range
# By a group for prices, once: FOR_FREE (1 - ρ²)² ε², ρ the smallest range over the largest, less by
# m/(m + FREE_HALF_COUNT).
FOR_FREE = 0.23
FREE_HALF_COUNT = 10.0
# A step from above with N grid steps to ε adds about this times ε²/N²; one from below loses as
# much.
CELL = 0.2
SENSITIVITY = 0.7  # how a relative change of the variance moves ε: by half (small ε) to all of it

# Shares of the tolerance; the rest is for the lower bound.
GROUP_SHARE = 0.35  # for the split into groups
GRID_SHARE = 0.4  # for the grids

# The work of recursions.
PER_STEP = 1e-4  # of a step from above, for the call,
PER_NODE = 3.8e-8  # and for each node
PER_STEP_TOGETHER = 1e-5  # the same of one of several multisets that are stepped together
PER_NODE_TOGETHER = 5.5e-8
WIDER = 1.6  # times as many steps as are asked for, that grids of different ranges have
FOR_WEIGHTS = 1.4  # times as long as one alone, that a step for prices takes
LAYER_NODES = 10.0  # deviations that a layer's nodes span, averaged over the layers of a ladder

# How groups and grids are looked for.
STEPS_JOINED = (
    10,
    16,
    32,
)  # grid steps that are assumed before the grids are chosen; each is tried
# Grids of joined groups that take too much work are made coarser, until they add this share of the
# variance.
COARSEST_GRIDS = 0.02
# With more different ranges than this, only one split is made and one first run is planned, because
# plans themselves take time.
MOST_TRIED = 40
JOINED_SHARE = 0.95  # of the work, that groups of several ranges may take
FEWEST_STEPS = 6  # to the largest ε of a group
MOST_STEPS = 1024
SMALLEST_GROUP = 16  # sizes of the parts of one range that are tried first and last
LARGEST_GROUP = 4096
LARGER = 1.25  # factor from one size, number of steps or allowance that is tried to the next
FEWEST_STATES = 4.0  # limits of a group's multisets that are tried first and last
MOST_STATES = 40_000
MORE_STATES = 1.3  # the factor from one to the next
NOISY = 1.5  # a grid of different ε's is made finer while its noise is so much above its share,
FINER_STEPS = 1.4  # by this factor

# ---- strategies: which ones are tried

# How many of the ranges are played with t chosen from all answers: equal ones (a multiple of
# LADDER_PERIOD) and different ones.
LAST_EQUAL = 192
LAST_DIFFERENT = 640
LAST_KINDS = 192  # how many different ones there may be among them
STEPS_OF_KINDS = 240  # grid steps to the largest where they are different
GRID_SHARE_BELOW = 0.15  # of the tolerance, for the recursion from below
LATTICE_SHARE_BELOW = 0.05  # of the tolerance, for its lattice
MOST_ATOMS = 150_000

# ---- recursion and its steps

# The windows' half-widths in deviations. To the left V is close to 1 - u, and to the chord that
# replaces it; from any point of a window of ``REACH`` the walk to the origin strays by less than
# STRAY.
BELOW = 5.0
STRAY = 4.5
REACH = 9.0
LADDER_HEAD = 64  # layers of a ladder that are stored: the first ones,
LADDER_PERIOD = 32  # and one in so many
BATCH = 2**15  # node values that are stepped at a time
# Chords of a step from below are chosen by SAMPLED nodes in each of SAMPLED_BLOCKS blocks, and at
# least END_SAMPLES offsets beyond the best ones of these on either side.
SAMPLED = 12
SAMPLED_BLOCKS = 4
END_SAMPLES = 2
GRID_CELL = 0.25  # in units of h²: what a step on a grid of different ε's adds to the variance
LISTED = 4_000  # sums of losses that are listed one by one; a grid is used for more
# Passes in which points above the convex minorant are dropped; any points left after that only cost
# tightness.
HULL_PASSES = 100

# ---- prices

WEIGHT_STEPS = 40  # grid steps of the largest range, at least
# The profile of a declared cost that is no range.
PROFILE_STEPS = 8  # how many times finer than the game's its own grid is
PROFILE_DELTA = 1e-9  # the δ for which it is tilted
SPREAD_STEPS = 4  # grid steps of the game to a deviation of such a cost, at least
PROFILE_BEYOND = 1e-9  # the share of δ beyond which the profile is not looked at
PROFILE_NODES = 4000  # at most
FINEST_WEIGHT = 8  # price of the smallest range, at most
WEIGHT_EXPONENT = 1.93  # prices are about ε^1.93: near ε², where many costs meet
WEIGHT_MISFIT = 0.02  # by how much, relatively, prices may miss the proportions
# Levels for many different ranges: grid steps, prices, and about what share of the variance coins,
# prices that miss the proportions, and the grid add.
ROUNDING_LEVELS = (
    ((22, 27, 31, 35), (2, 3, 4, 5), 0.0107),
    ((22, 27, 31, 35, 40, 43), (4, 6, 8, 10, 13, 15), 0.0082),
    ((16, 19, 25, 28, 34, 37, 41), (5, 7, 12, 15, 22, 26, 32), 0.0087),
)
# Levels made for a few ranges with many costs each.
HIGHEST_TOP = 16  # the largest price
TUNED_STEPS = tuple(range(24, 100))  # grid steps to the largest range
NEARLY = 4e-4  # by how much, relatively, a level may lie above what its price is worth
LESS_NOISE = 0.95  # factor by which levels must add less noise than others that take less work
MOST_BANDED = 8  # ranges: of more no such levels are tried
LEAST_BANDED = 1.0  # seconds: with less work no such levels are tried
WIDEST_BAND = 2  # ranges: three take too long at the precision that pays
WORTH_POINTS = 60  # ranges whose worth is computed; between them by interpolation
LOW_WEIGHT_MASS = 1e-6  # the probability of prices that are low, for which a little more is charged

# ---- laws with two outcomes

TRIED_LOSSES = 16
# Ratio, less one, of neighbouring orders near the one that decides, and elsewhere.
ORDER_STEP_NEAR = 4e-4
ORDER_STEP_FAR = 1e-2
HALVINGS = 14  # of the logarithm of the mass

# ---- certificates: what is proposed to the checker, which proves it

AS_GOOD = 3e-4  # relative: a run this close to the best is the one that is certified
CERTIFIED_AGAIN = 2  # further runs, while another bound is ahead,
CERTIFIED_FINER = 30.0  # each finer by this factor
CERTIFIED_LEFT = 5.0  # deviations of the product that are kept below the mean
# In units of rounding, of a node value in each step: more than the checker's intervals are wide.
CHECKER_LIFT = 100
CHECKER_ROOM = 1e-5  # relative, of δ: left for the checker's rounding
CHECKER_ROOM_OF_MANY = 1e-3  # the same where costs of several kinds are read off on one lattice

# ---- games of concentrated costs, step by step

# A *deviation* is the standard deviation of a cost's loss; *programs* are the linear programs of
# steps, solved at some nodes (``concentrated_game``). Work is in seconds.

# The grid of a game.
GAME_NODES = 24  # nodes to a deviation of the largest cost, in the coarsest grid
GAME_NODES_OF_SMALLEST = 8  # the same of the smallest cost
# The games that are tried, the first that fits the work is taken: how many times as many nodes as
# the coarsest grid, and how many times farther apart the programs of centred losses are solved.
GAME_FINENESS = (
    (3.0, 1.0),
    (2.0, 1.0),
    (1.5, 1.0),
    (1.0, 1.0),
    (1.0, 1.5),
    (1.0, 2.0),
    (1.0, 3.0),
)
GAME_BEYOND = 1.0  # deviations of the largest cost that a table reaches beyond what is asked
FINER_FOR_RANGES = 1.3  # by how much a grid may be finer so that ranges fit it

# Sketches: games that solve programs of centred losses in few steps.
SKETCHED_FINENESS = (3.0, 1.0)  # their grids, as in GAME_FINENESS
MOST_SOLVED = (8, 7, 6, 5, 4, 3, 2)  # the most costs of one kind whose programs are solved
# Where the smallest mean of centred losses is between these shares of ρ, solving all programs
# farther apart is better than a sketch.
SPARSE_MEANS = (0.3, 0.7)

# Programs.
PROGRAM_LEFT = 3.0  # deviations below 0 at which their nodes begin
PROGRAM_RIGHT = 7.0  # deviations beyond x at which they end
SOLVED_PER_DEVIATION = 8  # programs to a deviation of all costs to come
CENTRED_SOLVED_PER_DEVIATION = 12  # the same of centred losses
SOLVED_REACH = 8.0  # in deviations of all costs to come: beyond, V is negligible
SIMPLEX_STEPS = 60  # at most
UNTIED = 1e-6  # by how much right sides are moved apart
LARGEST_COEFFICIENT = 1e3  # of a column that is scaled to 1
PROGRAM_TOLERANCE = 1e-5  # relative, of a program's value: how far from the largest it may end
# How often an order that solutions violate is added: of centred losses, and of others with ξ < 0,
# which certificates have.
MORE_ORDERS = 2
MORE_ORDERS_UNCENTRED = 4

# Families of laws with a large loss.
LAWS_PER_DEVIATION = 24  # large losses to a deviation
CENTRED_LAWS_PER_DEVIATION = 8  # the same of centred losses
LARGEST_LOSS = 16.0  # in deviations: the largest one that is tried,
LOSSES_BEYOND = 3.0  # and how far beyond the reach of the game
LOW_LOSSES = (0.7, 1.2, 2.0)  # of centred losses, in deviations below 0
SHARES_OF_MEAN = (0.75, 0.97)  # means of laws with a low loss, as shares of the largest mean
SHARES_OF_LOW = (1.0, 0.99, 0.97, 0.93, 0.85)  # how often the low loss of a solution is played
LAW_ORDERS = 60  # at which moments are compared with their limits
LAW_ORDERS_NEAR = 25  # the same about those that decide
LEAST_LAW_ORDER = 1e-2  # the smallest of them, over the deviation
LAW_HALVINGS = 28  # of ln p of the large loss
LAW_RETREAT = 0.5  # how far below the first ln p the second search begins
LAW_TOLERANCE = 1e-9  # how far a moment may be above its limit by rounding
# Laws near the solutions of the programs of these numbers of costs are played, in later steps too.
COUNTS_OF_LAWS = (1, 2, 3, 5, 8, 13)

# The work of a game.
WORK_PER_MAJORANT = 2e-4
WORK_PER_NODE = 2e-7  # of a majorant
WORK_PER_CENTRED_MAJORANT = 1.3e-3  # what one of centred losses takes more
WORK_PER_UNSOLVED = 0.01  # of a step of a sketch in which only the largest mean counts
WORK_PER_UNCENTRED_MAJORANT = 5e-4  # what a majorant of such a step takes more
WORK_PER_FAMILY = 0.1  # of the laws of a class
WORK_PER_CENTRED_FAMILY = 0.15  # of those of a class of centred losses
WORK_PER_LAW_NEAR = 8e-4  # of laws near the solution of a program
WORK_PER_MIXED_STATE = 8e-3  # of the steps of ranges from one multiset

# Several games, and many equal costs.
WORK_PER_COST = 0.02  # of one more cost of a kind, for a share of the work of several games
WORK_PER_CENTRED_COST = 0.07  # the same of a CDP cost
MOST_IN_GAMES = 40  # more equal costs are one Gaussian rather than several games
# How far, in units of ρ, the variance of a Gaussian that bounds a few of many equal costs may be
# above 2ρ each, and halvings in the search for the least one.
MOST_EXCESS = 8.0
VARIANCE_HALVINGS = 30
LAST_GAME_SHARE = 0.6  # of the work, that the game of a few of many equal costs may take
# The largest deviation of Gaussians before a game: their nodes take memory in proportion to it, and
# at an ε of millions a game of twenty costs adds nothing that can be seen.
LARGEST_MU_BEFORE_GAME = 5000.0

# A game beside other costs.
GAME_NEGLIGIBLE = 1e-5  # share of δ: where the game alone is worth that, its tables may end
GAME_SHARE = 0.9  # of a stage, that it may take
GAME_BESIDE_RANGES = 0.8  # of that, where groups of ranges are needed as well
# A game of ranges and CDP costs whose nodes are farther apart than this loses more than groups do.
SPARSEST_WITH_RANGES = 2.0
