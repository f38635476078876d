"""From a total (ε, δ), or an accuracy, to the mechanisms that answer a top-k question best, before
any data is seen.
"""

from dptopk.planning.best_design import default_d_bar as default_d_bar, plan_topk as plan_topk
from dptopk.planning.choose import plan as plan, revived as revived
from dptopk.planning.division import (
    BudgetItem as BudgetItem,
    Division as Division,
    divide as divide,
)
from dptopk.planning.protocol import Plan as Plan
from dptopk.planning.stream_plan import plan_continual as plan_continual
from dptopk.planning.topk_plan import OnePhase as OnePhase, Phase as Phase, TopKPlan as TopKPlan
from dptopk.planning.two_phase import (
    TwoPhasePlan as TwoPhasePlan,
    plan_two_phases as plan_two_phases,
)
