"""One quick run of every experiment, shared by the tests."""

import dataclasses

import pytest

from dptopk.experiments import EXPERIMENTS
from dptopk.experiments.experiment import Settings
from dptopk.experiments.runner import run


@dataclasses.dataclass(frozen=True)
class Run:
    """Where the files are, and the outcomes by name."""

    folder: object
    outcomes: dict
    progress: dict

    def table(self, name):
        """The numbers behind a figure, as written to its CSV."""
        import pandas as pd

        return pd.read_csv(self.folder / f"{name}.csv")

    def line(self, name, start):
        """The line of "paper says / we get" whose quantity starts so."""
        (found,) = (line for line in self.outcomes[name].comparisons if line.quantity.startswith(start))
        return found


@pytest.fixture(scope="session")
def quick(tmp_path_factory):
    folder, progress = tmp_path_factory.mktemp("figures"), {}

    def on_start(experiment):
        shares = progress.setdefault(experiment.name, [])
        return shares.append

    outcomes = run(EXPERIMENTS, folder, Settings(quick=True), on_start=on_start)
    return Run(folder, {outcome.experiment.name: outcome for outcome in outcomes}, progress)
