"""Trade-off functions, privacy regions and several (ε, δ) constraints at once."""

from dptopk.accounting.f_dp.multi_dp import multi_dp_bracket as multi_dp_bracket, multi_dp_delta as multi_dp_delta
