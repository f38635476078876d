"""Released answers: rows, intervals, plots."""

from dptopk.release.release import Release as Release
