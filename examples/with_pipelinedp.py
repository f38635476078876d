"""What a PipelineDP job may spend beside selections that are charged already.

Run as ``python examples/with_pipelinedp.py``. PipelineDP takes a total (ε, δ) and no costs from
outside: the largest ε that fits beside the selections is found by ``calibrate``, with the job as
one (ε, δ)-DP cost.
"""

from __future__ import annotations

from dptopk import ApproxDP, BoundedRange, Budget, Charge, calibrate, compose

SELECTIONS = Charge({BoundedRange(0.1): 100}, adaptive=True)
BUDGET, DELTA_OF_JOB = Budget(3.0, 1e-6), 5e-7


def with_job(epsilon: float) -> Charge:
    """The selections and a job of (ε, δ)-DP."""
    return Charge.join(SELECTIONS, Charge({ApproxDP(epsilon, DELTA_OF_JOB): 1}))


def main() -> tuple[float, float]:
    """(total_epsilon, total_delta) for the budget accountant of the job."""
    epsilon = calibrate(with_job, BUDGET)
    print(f"the job may spend ε = {epsilon:.4f}, δ = {DELTA_OF_JOB:g}")
    print(f"all: {compose(with_job(epsilon), delta=BUDGET.delta)}")
    try:
        import pipeline_dp
    except ImportError:
        print("pipeline_dp is not installed: pip install pipeline-dp")
    else:
        print(pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=DELTA_OF_JOB))
    return epsilon, DELTA_OF_JOB


if __name__ == "__main__":
    main()
