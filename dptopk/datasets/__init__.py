"""Loaders, shipped counts, generators and contribution bounding; no privacy logic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.budgets.parallel import segments_charge as segments_charge
    from dptopk.datasets.backends.base import Backend as Backend
    from dptopk.datasets.backends.duckdb import DuckDB as DuckDB
    from dptopk.datasets.backends.registration import (
        check_backend as check_backend,
        register_backend as register_backend,
    )
    from dptopk.datasets.backends.spark import Spark as Spark
    from dptopk.datasets.bounding import Bounds as Bounds
    from dptopk.datasets.clipping import (
        ClippingLoss as ClippingLoss,
        clipping_loss as clipping_loss,
        users_by_labels as users_by_labels,
    )
    from dptopk.datasets.counts_file import (
        columns_of as columns_of,
        read_counts as read_counts,
        read_labels as read_labels,
    )
    from dptopk.datasets.events import events_histogram as events_histogram
    from dptopk.datasets.segments import Segments as Segments, segment_histograms as segment_histograms
    from dptopk.datasets.store import EventsStore as EventsStore
    from dptopk.datasets.synthetic import Truth as Truth, make_events as make_events
    from dptopk.datasets.two_counts import event_counts as event_counts
    from dptopk.datasets.words import macbeth as macbeth, macbeth_counts as macbeth_counts
    from dptopk.histogram.event_counts import EventCounts as EventCounts
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "dptopk.budgets.parallel": "segments_charge",
            ".backends.registration": "register_backend check_backend",
            ".backends.base": "Backend",
            ".backends.duckdb": "DuckDB",
            ".backends.spark": "Spark",
            ".bounding": "Bounds",
            ".clipping": "ClippingLoss clipping_loss users_by_labels",
            ".counts_file": "columns_of read_counts read_labels",
            ".two_counts": "event_counts",
            "dptopk.histogram.event_counts": "EventCounts",
            ".events": "events_histogram",
            ".segments": "Segments segment_histograms",
            ".store": "EventsStore",
            ".synthetic": "Truth make_events",
            ".words": "macbeth macbeth_counts",
        },
    )
