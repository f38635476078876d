"""Guesses: how much is tried, how finely, how long. Soundness depends on none of them.

Whatever stands here, an upper bound stays above and a lower bound below the truth
(docs/notes/setwise.md; the tests change them and look); only how close they come, and how long that
takes, is at stake. The values were found by trial on the registrations of
benchmarks/bench_setwise.py. What soundness does depend on stands, with its reason, where it is
used.
"""

from __future__ import annotations

# ---- optimum: runs of an answer, each finer than the last

# Tolerances of the runs: the loosest that is aimed at, by how much each next one is finer, the
# finest, the coarsest.
LOOSEST = 0.01
FINER = 2.5
FINEST = 1e-7
COARSEST = 0.1
# The first run goes to this share of the tolerance asked for at once, if that fits in the stage.
FIRST_SHARE = 0.5
# The next run aims at this share of the width asked for, and is finer by no more than a factor 1 /
# LEAP.
AIM = 0.8
LEAP = 0.05
# A run is worth its time if it is finer than the last by this factor; there is no use in another
# one if the last narrowed the bracket to no less than STUCK of what it was.
COARSER = 1.25
STUCK = 0.85
# A strategy is evaluated again if the bracket is at most this many times as wide as the tolerance
# of the last one.
LOWER_AGAIN = 10.0
# Share of what is left of a stage that the groups of a run may take.
GROUPS_SHARE = 0.9
# Share of the tolerance left to the lattice of the product, and its length at most.
LATTICE_SHARE = 0.05
MOST_POINTS = 2**19
WORK_PER_FACTOR = 5e-4  # of a product
WORK_PER_CURVE = 0.2  # of the curve of concentrated costs
WORK_PER_PLACE = 5e-7  # of its lattice, if that has the steps of the groups
WORK_PER_LATTICE_POINT = 1e-5  # of a wide discrete Gaussian, whose lattice is split for every grid
# A lattice holds WINDOW standard deviations; a cell is at most 1/CELLS_PER_STD of one. Splitting in
# cells costs less of the tolerance than their width, by SPLITTING.
WINDOW = 30.0
CELLS_PER_STD = 4.0
SPLITTING = 5.0
# What lies beyond a group's window is worth this share of δ; its reach is a multiple of REACHES
# standard deviations, so that groups can be used again.
WINDOW_SHARE = 1e-5
# Where δ is asked for, the guess of it is taken to be at most this many times too large.
GUESS_ABOVE_DELTA = 100
REACHES = 0.5
# Orders among which the best one of the Rényi route is looked for: a grid of ORDERS, refined ZOOMS
# times; of FEW_ORDERS where there are very many different costs.
ORDERS = 60
ZOOMS = 5
FEW_ORDERS = 12
# More different ranges than this are rounded to about this many.
MOST_RANGES = 200
# The curve of concentrated costs: standard deviations beyond what is asked, points at most.
CONCENTRATED_REACH = 8.0
CONCENTRATED_POINTS = 2**15
# The conversion of zCDP costs is worth about a Gaussian with this multiple of the variance 2 Σ ρ.
# Costs above a cut are left to it; cuts are the largest ρ, halved up to this often.
SMOOTHED = 1.15
SMOOTHED_CUTS = 10
# Of at least this many different ranges the small ones are tried as one Gaussian beside at most
# MOST_LEFT large ones, for the CUTS that look best, each in this share of a stage; one that takes
# less than CHEAP_SHARE of it is tried even where groups look better.
FEWEST_REDUCED = 2
MOST_LEFT = 12
CUTS = 2
REDUCED_SHARE = 0.3
CHEAP_SHARE = 0.05
# A strategy's ε is looked for up to this many standard deviations below the upper bound; once it is
# within SETTLED tolerances, no other strategy is tried.
STRATEGY_REACH = 5.0
SETTLED = 4.0
# The variance of the loss under the tilt is at least this share of what it is without it.
LEAST_VARIANCE = 1e-6
# How far below the upper bound, relatively, a lower bound on one concentrated cost is tried.
CONCENTRATED_RETREATS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)

# ---- partition: groups and their grids

# A further group of ranges, the largest of them ε, adds about GROUP ε² to the variance of the loss,
# less by m/(m + GROUP_HALF_COUNT) where it has only m costs of each range; a weighted group adds
# FOR_FREE (1 - ρ²)² ε² once, ρ the smallest range over the largest, less by m/(m +
# FREE_HALF_COUNT). A step from above with N grid steps to ε adds about CELL ε²/N², one from below
# loses as much (docs/notes/setwise.md).
GROUP = 0.19
GROUP_HALF_COUNT = 1.2
FOR_FREE = 0.23
FREE_HALF_COUNT = 10.0
CELL = 0.2
# How a relative change of the variance moves ε: by half (small ε) to all of it (large ε).
SENSITIVITY = 0.7
# Shares of the tolerance that the split into groups and the grids may use; the rest is for the
# lower bound.
GROUP_SHARE = 0.35
GRID_SHARE = 0.4
# Work of a step from above: for the call, and for each node.
PER_STEP = 1e-4
PER_NODE = 3.8e-8
# The same of one of several multisets that are stepped together; their grids have about WIDER times
# the steps that are asked for. A step for prices takes FOR_WEIGHTS times as long as one alone.
PER_STEP_TOGETHER = 1e-5
PER_NODE_TOGETHER = 5.5e-8
WIDER = 1.6
FOR_WEIGHTS = 1.4
# Grid steps that are assumed before the grids are chosen; each is tried. Grids of joined groups
# that take too much work are made coarser, until they add this share of the variance.
STEPS_JOINED = (10, 16, 32)
COARSEST_GRIDS = 0.02
# With more different ranges than this, only one split is made and one first run is planned, because
# plans themselves take time.
MOST_TRIED = 40
# Share of the work that groups of several ranges may take.
JOINED_SHARE = 0.95
# Nodes of a layer: this many standard deviations, averaged over the layers of a ladder.
LAYER_NODES = 10.0
FEWEST_STEPS = 6
MOST_STEPS = 1024
SMALLEST_GROUP = 16
LARGEST_GROUP = 4096
LARGER = 1.25
FEWEST_STATES = 4.0
MOST_STATES = 40_000
MORE_STATES = 1.3
# A grid of different ε's is made finer, by FINER_STEPS, while its noise is this much above its
# share.
NOISY = 1.5
FINER_STEPS = 1.4

# ---- strategies: which ones are tried

# How many of the ranges are played with t chosen from all answers: equal ones (a multiple of
# LADDER_PERIOD) and different ones.
LAST_EQUAL = 192
LAST_DIFFERENT = 640
# How many different ones among them, and grid steps to the largest where they are different.
LAST_KINDS = 192
STEPS_OF_KINDS = 240
# Shares of the tolerance for the recursion from below and for its lattice.
GRID_SHARE_BELOW = 0.15
LATTICE_SHARE_BELOW = 0.05
MOST_ATOMS = 150_000

# ---- recursion and its steps

# The windows' half-widths in standard deviations. To the left V is close to 1 - u, and to the chord
# that replaces it; from any point of a window of ``REACH`` the walk to the origin strays by less
# than STRAY.
BELOW = 5.0
STRAY = 4.5
REACH = 9.0
# Layers of a ladder that are stored: the first ones, and every LADDER_PERIOD-th.
LADDER_HEAD = 64
LADDER_PERIOD = 32
BATCH = 2**15  # node values that are stepped at a time
# Chords of a step from below are chosen by SAMPLED nodes in each of SAMPLED_BLOCKS blocks,
# END_SAMPLES more at the ends.
SAMPLED = 12
SAMPLED_BLOCKS = 4
END_SAMPLES = 2
GRID_CELL = 0.25  # of the variance that a grid of different ε's adds, h² a step
LISTED = 4_000  # sums of losses that are listed one by one; a grid is used for more
# Passes in which points above the convex minorant are dropped; any points left after that only cost
# tightness.
HULL_PASSES = 100

# ---- prices

WEIGHT_STEPS = 40  # grid steps of the largest range, at least
# The profile of a declared cost: how much finer its grid is, the δ whose tilt it has, standard
# deviations of a cost in grid steps, the share of δ beyond which it is not looked at, nodes at
# most.
PROFILE_STEPS = 8
PROFILE_DELTA = 1e-9
SPREAD_STEPS = 4
PROFILE_BEYOND = 1e-9
PROFILE_NODES = 4000
FINEST_WEIGHT = 8  # price of the smallest range, at most
WEIGHT_EXPONENT = 1.93  # prices are about ε^1.93: near ε², where many costs meet
WEIGHT_MISFIT = 0.02  # by how much, relatively, prices may miss the proportions
# Anchors for many different ranges: grid steps, prices, and about what share of the variance coins,
# prices that miss the proportions, and the grid add.
ROUNDING_LEVELS = (
    ((22, 27, 31, 35), (2, 3, 4, 5), 0.0107),
    ((22, 27, 31, 35, 40, 43), (4, 6, 8, 10, 13, 15), 0.0082),
    ((16, 19, 25, 28, 34, 37, 41), (5, 7, 12, 15, 22, 26, 32), 0.0087),
)
# Anchors made for a few ranges with many costs each: top prices, grid steps, how far above a whole
# number of steps a price may be, by what factor one must add less noise than another that takes
# less work; the most ranges, and the least seconds, for which they are tried.
HIGHEST_TOP = 16
TUNED_STEPS = tuple(range(24, 100))
NEARLY = 4e-4
LESS_NOISE = 0.95
MOST_BANDED = 8
LEAST_BANDED = 1.0
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
CERTIFIED_AGAIN = 2  # further runs, finer by this factor, while another bound is ahead
CERTIFIED_FINER = 30.0
CERTIFIED_LEFT = 5.0  # standard deviations of the product that are kept below the mean
# In units of rounding, of a node value in each step: more than the checker's intervals are wide.
CHECKER_LIFT = 100
CHECKER_ROOM = 1e-5  # relative, of δ: left for the checker's rounding
CHECKER_ROOM_OF_MANY = 1e-3  # the same where costs of several kinds are read off on one lattice

# ---- games of concentrated costs, step by step

# Nodes to a standard deviation of the largest cost, in the coarsest game; how many times as many,
# and how many times farther apart the nodes are at which steps of centred losses are solved: the
# finest that fits is taken; how far V is looked at, in deviations below 0 and above x and the
# largest answer.
GAME_NODES = 24
GAME_NODES_OF_SMALLEST = 8  # and of the smallest cost
GAME_FINENESS = (
    (3.0, 1.0),
    (2.0, 1.0),
    (1.5, 1.0),
    (1.0, 1.0),
    (1.0, 1.5),
    (1.0, 2.0),
    (1.0, 3.0),
)
GAME_BEYOND = 1.0
# The grids, and the most costs of one kind whose programs of centred losses are solved, of games
# that do not fit otherwise; between which shares of ρ the smallest mean of such losses lies where
# solving all programs farther apart is better; the work of a step in which only the largest mean
# counts, and of its majorants.
SKETCHED_FINENESS = (3.0, 1.0)
MOST_SOLVED = (8, 7, 6, 5, 4, 3, 2)
SPARSE_MEANS = (0.3, 0.7)
WORK_PER_UNSOLVED = 0.01
WORK_PER_UNCENTRED_MAJORANT = 5e-4
PROGRAM_LEFT = 3.0
PROGRAM_RIGHT = 7.0
# Laws with a large loss: how many to a deviation, and of centred losses; the largest one, and how
# far beyond the largest answer they are tried, in deviations; low losses, in deviations, and shares
# of the largest mean of centred ones; orders, halvings of ln p, and how far ln E[e^{λL}] may be
# above its limit by rounding.
LAWS_PER_DEVIATION = 24
CENTRED_LAWS_PER_DEVIATION = 8
LARGEST_LOSS = 16.0
LOSSES_BEYOND = 3.0
LOW_LOSSES = (0.7, 1.2, 2.0)
SHARES_OF_MEAN = (0.75, 0.97)
SHARES_OF_LOW = (1.0, 0.99, 0.97, 0.93, 0.85)
LAW_ORDERS = 60
LAW_ORDERS_NEAR = 25
LEAST_LAW_ORDER = 1e-2  # over the deviation
LAW_HALVINGS = 28
LAW_RETREAT = 0.5
LAW_TOLERANCE = 1e-9
# x's to a deviation at which a step is solved, and steps of the simplex method.
SOLVED_PER_DEVIATION = 8
CENTRED_SOLVED_PER_DEVIATION = 12
SOLVED_REACH = 8.0  # in deviations of all costs to come: beyond, V is negligible
SIMPLEX_STEPS = 60
UNTIED = 1e-6  # by how much right sides are moved apart
LARGEST_COEFFICIENT = 1e3  # of a column that is scaled to 1
# How often an order that solutions violate is added: of centred losses, and of others with ξ < 0,
# which certificates have.
MORE_ORDERS = 2
MORE_ORDERS_UNCENTRED = 4
# Laws near the solutions of the programs of these numbers of costs are played, in later steps too.
COUNTS_OF_LAWS = (1, 2, 3, 5, 8, 13)
# Work of a majorant and of each of its nodes, of one of centred losses, of the laws of a class, and
# of those near the solution of a program.
WORK_PER_MAJORANT = 2e-4
WORK_PER_NODE = 2e-7
WORK_PER_CENTRED_MAJORANT = 1.3e-3
WORK_PER_FAMILY = 0.1
WORK_PER_CENTRED_FAMILY = 0.15
WORK_PER_LAW_NEAR = 8e-4
PROGRAM_TOLERANCE = 1e-5  # relative, of a program's value: how far from the largest it may end
# Work of one more cost of a kind, for a share of the work of several games.
WORK_PER_COST = 0.02
WORK_PER_CENTRED_COST = 0.07
# More equal costs than this are one Gaussian rather than several games.
MOST_IN_GAMES = 40
# Of very many equal costs: how far, in units of ρ, the variance of a Gaussian that bounds a few of
# them may be above 2ρ each, and halvings in the search for the least one; the share of the work
# that their game may take.
MOST_EXCESS = 8.0
VARIANCE_HALVINGS = 30
LAST_GAME_SHARE = 0.6
# The largest deviation of Gaussians before a game: their nodes take memory in proportion to it, and
# at an ε of millions a game of twenty costs adds nothing that can be seen.
LARGEST_MU_BEFORE_GAME = 5000.0
# Work of a step of ranges beside concentrated costs; by how much a grid may be finer so that ranges
# fit it.
WORK_PER_MIXED_STATE = 8e-3
FINER_FOR_RANGES = 1.3
# Beside other costs the game is looked at up to where it is worth this share of δ; it may take this
# share of a stage, and where groups of ranges are needed as well this share of that.
GAME_NEGLIGIBLE = 1e-5
GAME_SHARE = 0.9
GAME_BESIDE_RANGES = 0.8
# A game of ranges and CDP costs whose nodes are farther apart than this loses more than groups do.
SPARSEST_WITH_RANGES = 2.0
