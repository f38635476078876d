"""Request models beside questions, as the OpenAPI page describes them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from dptopk.service.questions import Body


class NewVersion(Body):
    """A request to set the version of a data set's data."""

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
    """The body of a refusal: a word for the reason, and a message."""

    error: str
    message: str
