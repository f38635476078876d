"""The HTTP service: analysts ask, see what it costs, and share a budget."""

from dptopk.service.catalog import Catalog as Catalog, DatasetSpec as DatasetSpec
