"""One quick run of every experiment, shared by the tests and by all workers."""

import dataclasses
import fcntl
import os
import pickle

import pytest

from dptopk.experiments import EXPERIMENTS
from dptopk.experiments.experiment import RunSettings
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
        (found,) = (
            line for line in self.outcomes[name].comparisons if line.quantity.startswith(start)
        )
        return found


@pytest.fixture(scope="session")
def quick(tmp_path_factory):
    """Made by the worker that asks first; the others wait for it and read what it found."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    folder = (
        tmp_path_factory.mktemp("figures")
        if alone
        else tmp_path_factory.getbasetemp().parent / "figures"
    )
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = folder / "found.pickle"
        if not found.is_file():
            found.write_bytes(pickle.dumps(_all(folder)))
        outcomes, progress = pickle.loads(found.read_bytes())  # noqa: S301
    return Run(folder, outcomes, progress)


def _all(folder):
    progress = {}

    def on_start(experiment):
        shares = progress.setdefault(experiment.name, [])
        return shares.append

    outcomes = run(EXPERIMENTS, folder, RunSettings(quick=True), on_start=on_start)
    return {outcome.experiment.name: outcome for outcome in outcomes}, progress
