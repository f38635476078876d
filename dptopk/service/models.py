"""Request models, as the OpenAPI page describes them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dptopk._internal.choices import Counts, Method
from dptopk.mechanisms.named import names
from dptopk.service.questions import EPSILONS, LARGEST_ACCURACY, MOST_ROWS, MOST_SLOTS, Run, TopK

Value = str | int | float | bool


class Body(BaseModel):
    """What a request holds: nothing else."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class _Scope(Body):
    where: dict[str, str] = Field(default={}, description="Column to value, out of the data set's public lists.")
    segments: dict[str, list[str]] = Field(
        default={},
        max_length=1,
        description="Column to values, one column at most: ask of each of these segments at once; [] = of all.",
    )


class Asked(_Scope):
    """A question: the top k, for (epsilon, delta) or at a wanted accuracy; of segments, in each of them."""

    k: int = Field(ge=1, le=MOST_ROWS, description="How many labels.")
    epsilon: float | None = Field(
        default=None, ge=EPSILONS[0], le=EPSILONS[1], description="Part of the budget; or give accuracy."
    )
    delta: float = Field(default=0.0, ge=0, lt=1)
    accuracy: float | None = Field(
        default=None, gt=0, le=LARGEST_ACCURACY, description="95% of the noise on a count is to be within ± this many."
    )
    counts: Counts = "auto"
    method: Method = "auto"
    d_bar: int | None = Field(default=None, ge=1, le=MOST_SLOTS)

    def question(self) -> TopK:
        """Return the question as the library takes it."""
        return TopK(**self.model_dump())


class Named(Body):
    """A mechanism: its name, and its parameters as the library's classes take them."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    name: str = Field(json_schema_extra=lambda schema: schema.update(enum=list(names())))


class Ran(_Scope):
    """One mechanism by name; for counts of certain labels, which."""

    mechanism: Named
    labels: list[Value | dict[str, Any] | None] | None = Field(
        default=None, max_length=MOST_ROWS, description="Count only these: public labels, or ones released before."
    )
    ranking: list[Value | dict[str, Any] | None] | None = Field(
        default=None, max_length=MOST_ROWS, description="For CountMLE: labels released before, the first first."
    )

    def question(self) -> Run:
        """Return the question as the library takes it."""
        return Run(**self.model_dump())


class NewVersion(Body):
    """The data changed."""

    version: str = Field(min_length=1, max_length=64)


class Wanted(Body):
    """One query of a budget plan."""

    name: str = Field(min_length=1, max_length=100)
    kind: Literal["topk", "counts"] = "topk"
    k: int = Field(default=10, ge=1, le=1000)
    weight: float = Field(default=1.0, ge=1e-3, le=1e6)
    accuracy: float | None = Field(default=None, ge=0.5, le=1e6)
    locked: float | None = Field(default=None, ge=0.5, le=1e6)
    times: int = Field(default=1, ge=1, le=1000)
    segments: int = Field(default=1, ge=1, le=1000)
    segments_per_user: int | None = Field(default=None, ge=1, le=1000)
    labels_per_user: int | None = Field(default=None, ge=1, le=1_000_000)
    per_label_cap: int = Field(default=1, ge=1, le=1000)
    domain: Literal["private", "public"] = "private"


class Divide(Body):
    """A total and the queries to divide it over."""

    epsilon: float = Field(ge=0.01, le=100)
    delta: float = Field(ge=1e-15, le=0.01)
    queries: list[Wanted] = Field(min_length=1, max_length=20)


class Problem(BaseModel):
    """Why a request was refused."""

    error: str
    message: str
    extra: dict[str, Any] = {}
