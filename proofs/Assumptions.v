(* What each theorem rests on: "Closed under the global context" says on nothing. The reals of Coq's
   standard library have axioms of their own, which only Reals.v uses, and suprema those of classical
   logic, which only Supremum.v and Recursion.v use besides. *)
From dptopk Require Import Game Rounds Setwise Groups Cell Basic Failing Pairs Charges Union Pool
  Slot Optimum Countable Laplace Release Worlds Supremum Recursion Reals.
Print Assumptions every_play_delta.
Print Assumptions failing_step.
Print Assumptions good_set_step.
Print Assumptions BR_pairwise.
Print Assumptions setwise.
Print Assumptions prices.
Print Assumptions prices_of_a_registration.
Print Assumptions profiles_bound_every_play.
Print Assumptions groups.
Print Assumptions nodes_suffice.
Print Assumptions basic.
Print Assumptions failures.
Print Assumptions failures_beside_profiles.
Print Assumptions pairs_in_any_order.
Print Assumptions pairs_with_failures.
Print Assumptions charge_of_copies.
Print Assumptions charge_with_failures.
Print Assumptions a_play_has_its_charge.
Print Assumptions charges_compose.
Print Assumptions union_of_filters.
Print Assumptions one_pool.
Print Assumptions slot_pairing.
Print Assumptions slot_total.
Print Assumptions slot_floor.
Print Assumptions slot_release.
Print Assumptions slot_two_phases.
Print Assumptions slot_two_pairs.
Print Assumptions slot_and_floor.
Print Assumptions slot_laplace_tail.
Print Assumptions slot_laplace_cost.
Print Assumptions slot_laplace_release.
Print Assumptions slot_laplace_label.
Print Assumptions slot_noisy_count.
Print Assumptions slot_laplace_two_phases.
Print Assumptions slot_laplace_two_phases_delta.
Print Assumptions no_analyst_is_worth_more.
Print Assumptions every_strategy_is_an_analyst.
Print Assumptions countable_play.
Print Assumptions countable_outcomes.
Print Assumptions countable_failures.
Print Assumptions world_pure.
Print Assumptions world_range.
Print Assumptions world_failure.
Print Assumptions V_bounds_every_analyst.
Print Assumptions V_is_reached.
Print Assumptions V_is_a_bound.
Print Assumptions V_is_the_least.
Print Assumptions countable_analysts.
Print Assumptions V_of_pure_costs.
Print Assumptions world_pure_is_V.
Print Assumptions world_failure_is_V.
Print Assumptions world_range_is_V.
Print Assumptions setwise_real.
