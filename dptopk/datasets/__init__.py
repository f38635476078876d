"""Loaders, shipped counts, generators and contribution bounding; no privacy logic."""

from dptopk.budgets.parallel import segments_charge as segments_charge
from dptopk.datasets.backends.base import Backend as Backend
from dptopk.datasets.backends.duckdb import DuckDB as DuckDB
from dptopk.datasets.backends.registration import (
    check_backend as check_backend,
    register_backend as register_backend,
)
from dptopk.datasets.backends.spark import Spark as Spark
from dptopk.datasets.bounds import Bounds as Bounds
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
from dptopk.datasets.text_files import TextFile as TextFile
from dptopk.datasets.two_counts import event_counts as event_counts
from dptopk.datasets.words import macbeth as macbeth, macbeth_counts as macbeth_counts
from dptopk.histogram.event_counts import EventCounts as EventCounts
