"""What requests hold, as the OpenAPI page describes it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dptopk.service.questions import Question

__all__ = ["Asked", "Divide", "NewVersion", "Problem", "Wanted"]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class Asked(_Body):
    """A question: the top k, for (epsilon, delta) or at a wanted accuracy."""

    k: int = Field(ge=1, le=1000, description="How many labels.")
    epsilon: float | None = Field(default=None, ge=1e-6, le=100, description="Part of the budget; or give accuracy.")
    delta: float = Field(default=0.0, ge=0, lt=1)
    accuracy: float | None = Field(
        default=None, gt=0, le=1e9, description="95% of the noise on a count is to be within ± this many."
    )
    counts: Literal["auto", "gaussian", "laplace", "none"] = "auto"
    method: Literal["auto", "peel", "threshold"] = "auto"
    d_bar: int | None = Field(default=None, ge=1, le=1_000_000)
    where: dict[str, str] = Field(default={}, description="Column to value, out of the data set's public lists.")

    def question(self) -> Question:
        """As the library takes it."""
        return Question(**self.model_dump())


class NewVersion(_Body):
    """The data changed."""

    version: str = Field(min_length=1, max_length=64)


class Wanted(_Body):
    """One query of a budget plan."""

    name: str = Field(min_length=1, max_length=100)
    kind: Literal["topk", "counts"] = "topk"
    k: int = Field(default=10, ge=1, le=1000)
    weight: float = Field(default=1.0, gt=0, le=1e6)
    accuracy: float | None = Field(default=None, gt=0, le=1e9)
    locked: float | None = Field(default=None, gt=0, le=1e9)
    times: int = Field(default=1, ge=1, le=1000)
    segments: int = Field(default=1, ge=1, le=1000)
    segments_per_user: int | None = Field(default=None, ge=1, le=1000)
    labels_per_user: int | None = Field(default=None, ge=1, le=1_000_000)
    per_label_cap: int = Field(default=1, ge=1, le=1_000_000)
    domain: Literal["private", "public"] = "private"


class Divide(_Body):
    """A total and the queries to divide it over."""

    epsilon: float = Field(ge=1e-4, le=100)
    delta: float = Field(gt=0, lt=1)
    queries: list[Wanted] = Field(min_length=1, max_length=40)


class Problem(BaseModel):
    """Why a request was refused."""

    error: str
    message: str
    extra: dict[str, Any] = {}
