"""Request models beside questions, as the OpenAPI page describes them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from dptopk.service.questions import Body


class NewVersion(Body):
    """A request to set the version of a data set's data."""

    version: str = Field(min_length=1, max_length=64)


class WantedQuery(Body):
    """One of the queries over which a budget is divided; see ``planning.division.BudgetItem``."""

    name: str = Field(min_length=1, max_length=100, description="Its name, for people.")
    kind: Literal["topk", "counts"] = Field(
        default="topk",
        description="topk: find and count the k largest; counts: count k labels that are named.",
    )
    k: int = Field(default=10, ge=1, le=1000, description="How many labels.")
    weight: float = Field(
        default=1.0, ge=1e-3, le=1e6, description="How much an error of its counts matters."
    )
    accuracy: float | None = Field(
        default=None,
        ge=0.5,
        le=1e6,
        description="95% of the noise on a count must be within plus or minus this many.",
    )
    locked: float | None = Field(
        default=None,
        ge=0.5,
        le=1e6,
        description="As accuracy, but exactly so: other queries do not change it.",
    )
    times: int = Field(default=1, ge=1, le=1000, description="How often it will be asked.")
    segments: int = Field(
        default=1, ge=1, le=1000, description="Of how many segments it is asked, each time."
    )
    segments_per_user: int | None = Field(
        default=None, ge=1, le=1000, description="In how many of them one user counts; null: all."
    )
    labels_per_user: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="How many labels one user can affect; null: any number.",
    )
    per_label_cap: int = Field(
        default=1, ge=1, le=1000, description="By how much one user can change one count."
    )
    domain: Literal["private", "public"] = Field(
        default="private",
        description="Whether the labels come from the data or from a public list.",
    )


class DivisionRequest(Body):
    """A total and the queries to divide it over."""

    epsilon: float = Field(ge=0.01, le=100, description="The total of all queries together.")
    delta: float = Field(ge=1e-15, le=0.01)
    queries: list[WantedQuery] = Field(min_length=1, max_length=20)


class Problem(BaseModel):
    """The body of a refusal: a word for the reason, for programs, and a message for people."""

    error: str
    message: str
