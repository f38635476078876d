"""The private state: histograms, read once for each data version and condition, and never shown."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from dptopk.datasets import events_histogram, macbeth, read_counts, read_labels
from dptopk.errors import DptopkError
from dptopk.histogram import Histogram
from dptopk.service.catalog import DatasetSpec

__all__ = ["Histograms", "Unreadable"]

Progress = Callable[[int, int], None]
_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class Unreadable(DptopkError):
    """A data set cannot be read now; the reason is for the operator, not for the analyst."""


class Histograms:
    """Histograms of the catalog's data sets, the most recently used ones in memory.

    Args:
        at_most: how many are kept.
    """

    def __init__(self, at_most: int = 32) -> None:
        self._at_most = at_most
        self._kept: OrderedDict[_Key, Histogram] = OrderedDict()
        self._reading: dict[_Key, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, spec: DatasetSpec, version: str, where: Mapping[str, str], progress: Progress) -> Histogram:
        """The histogram of a data version under conditions; two questions at the same time read it once.

        Raises:
            Unreadable: when the source cannot be read.
            DptopkError: what ``progress`` raises.
        """
        key = (spec.name, version, tuple(sorted(where.items())))
        with self._lock:
            alone = self._reading.setdefault(key, threading.Lock())
        with alone:
            with self._lock:
                found = self._kept.get(key)
                if found is not None:
                    self._kept.move_to_end(key)
                    return found
            made = _read(spec, version, where, progress)
            with self._lock:
                self._kept[key] = made
                while len(self._kept) > self._at_most:
                    self._reading.pop(self._kept.popitem(last=False)[0], None)
            return made


def _read(spec: DatasetSpec, version: str, where: Mapping[str, str], progress: Progress) -> Histogram:
    stopped: list[DptopkError] = []

    def step(done: int, total: int) -> None:
        try:
            progress(done, total)
        except DptopkError as error:
            stopped.append(error)
            raise

    step(0, 1)
    try:
        whole = _source(spec, version, where, step)
        labels = None if spec.labels is None else read_labels(spec.labels)
    except Exception as error:  # noqa: BLE001 - whatever it is may quote data
        if stopped:
            raise stopped[0] from None
        raise Unreadable(f"the data of {spec.name!r} cannot be read now ({type(error).__name__})") from None
    step(1, 1)
    if labels is None:
        return whole
    return Histogram(whole.labels, whole.counts, sensitivity=spec.sensitivity, domain=labels, capped=whole.capped)


def _source(spec: DatasetSpec, version: str, where: Mapping[str, str], progress: Progress) -> Histogram:
    if spec.source == "macbeth":
        return macbeth(sensitivity=spec.sensitivity)
    path = spec.source.replace("{version}", version)
    if spec.user is None or spec.item is None:
        frame = read_counts(path, label=spec.label, count=spec.count, where=dict(where))
        return Histogram.from_pandas(frame, label="label", count="count", sensitivity=spec.sensitivity)
    options: dict[str, Any] = {"where": dict(where) or None, "top": spec.top}
    if spec.engine == "spark":
        from dptopk.datasets import Spark

        options["engine"] = Spark()
    return events_histogram(
        path,
        user=spec.user,
        item=spec.item,
        labels_per_user=spec.labels_per_user,
        per_label_cap=spec.per_label_cap,
        progress=progress,
        **options,
    )
