"""Side by side with other libraries, all in one run; writes docs/notes/benchmarks.md.

Run as ``python benchmarks/peers.py [--smoke] [--out FILE]``; it takes a few minutes, ``--smoke``
some seconds. Without ``--out`` the full run writes docs/notes/benchmarks.md and the small one
prints.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import time
from pathlib import Path

import _peers
import _peers_answers
import _peers_composition
import _peers_events
import _peers_noise
import _peers_selection
import _peers_service

HERE = Path(__file__).resolve().parent
PAGE = """# Side by side with other libraries

This note supports what README and the pages say of other libraries: what each takes and what it gives for the same
work, with the rows where dptopk is behind.

Made by `make bench`, all in one run: medians of 3 to 5 runs after one that is not counted, one run where that takes
longer than {long:g} s. {machine}.
Load averages {before} before and {after} after; {minutes:.1f} minutes in all. On a busy machine times
are too long, and small ratios mean little.

{versions}

## The top {k} of d counts

ε = {epsilon:g} a selection. dptopk's selection has the exact law of Gumbel noise and draws from the system's secure
source. OpenDP's `make_noisy_top_k` is exact and secure as well; its time depends on the counts far more than ours
(it is long where they lie far apart), so two kinds are shown. Where it would take minutes its time is extrapolated
from the row above in proportion to the labels. NumPy's line (`rng.gumbel`, `argpartition`) is neither exact nor
secure; it is what a prototype would do. dp-accounting and autodp have no mechanisms to run on data.

{selection}

## A million draws of integer noise

Exact discrete Laplace and Gaussian. The peers were timed on fewer draws and scaled up.

{noise}

## Composition

ε at δ = 10⁻⁶. "Certified to": relative width of the bracket that dptopk proves around its ε; the others give none.
In brackets: growth of the time since the row above. dptopk's bounds hold set-wise (any adaptive order); "–" says
that nothing is proven from below. The run that is not counted fills dptopk's memory of pairs: a first question about
10,000 × BR(0.1) takes about 1 s.

{composition}

What the others do with these costs: dp-accounting composes privacy loss distributions on a grid of 10⁻⁴; it knows
no bounded range, which is taken as pure DP here, also in the mix. OpenDP adds up ρ of zCDP (ε²/8, ε²/2, μ²/2) and
converts once. autodp adds up Rényi curves and converts once.

## Whole answers without δ

The top {answers_k} at ε = 1 for the whole answer, δ = 0: what the true counts of the answer lack of the {answers_k}
largest counts, added up; medians of 20 answers. The peers are JOINT (Gillenwater et al. 2022), canonical Lipschitz
(Shekelyan-Loukides 2022), permute-and-flip and the exponential mechanism peeled, written anew from the papers. All
cells, all sizes and recall: [whole answers](whole-answers.md), by `make measure WHAT=whole_answers`.

{answers}

## Events of members

From a Parquet file of (member, article) pairs to the {top} largest counts, DuckDB with {threads} threads:
`count(DISTINCT member)`, which bounds nothing, against `events_histogram` with at most {labels} articles a member,
chosen at random. Medians of 3 runs.

{events}

## The service

One worker, {clients} clients at once on the same machine, which take their share of its processors.

{service}

{remarks}
"""
REMARKS = """## Where a peer is ahead

* **Breadth.** OpenDP covers transformations of tables, polars pipelines, many more statistics, and bindings for R and
  Rust; dp-accounting and autodp know more kinds of subsampling, and diffprivlib has machine learning. A Poisson sample of users costs
  up to 15% more in dptopk: it takes the larger δ of both directions for each cost (1,000 × GDP(0.5) at rate 0.01: 0.827), where dp-accounting
  composes each direction apart (0.721 and 0.666).
* **Speed of a rough answer.** autodp's sum of Rényi curves takes about a millisecond at every k, where dptopk takes up
  to seconds for the last per cent; `compose(..., bound="renyi")` is dptopk's answer of that kind.
* **A first question about a hundred different ε.** 0.03 to 0.2 s of processor time, in dp-accounting 0.04 s on a grid
  that leaves its ε up to 0.6% larger; 100 Laplace and 100 Gaussian costs 0.05 s against 0.16 s.
* **Small inputs.** On 10⁴ labels the inexact prototype in NumPy is faster than the exact selection.
* **Vetting.** OpenDP's mechanisms come with proof documents and a process for vetting them. The proofs of dptopk are in
  docs/ and are checked by exact enumeration, but no outsider has vetted them.
* **Maturity.** All of them have users; dptopk is new."""


def versions() -> str:
    rows = [["Python", platform.python_version(), ""]]
    rows += [[name, importlib.metadata.version(name), ""] for name in ("numpy", "scipy")]
    for name in _peers.PEERS:
        reason = _peers.missing(name)
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = "–"
        rows.append([name, version, f"left out: {reason}" if reason else ""])
    return _peers.table(["library", "version", "note"], rows).replace("---:", "---")


def page(smoke: bool) -> str:
    start, before = time.perf_counter(), _peers.load()
    parts = {
        "versions": versions(),
        "selection": _peers_selection.section(smoke, str(HERE)),
        "noise": _peers_noise.section(smoke),
        "composition": _peers_composition.section(smoke),
        "answers": _peers_answers.section(smoke),
        "events": _peers_events.section(smoke),
        "service": _peers_service.section(smoke),
    }
    return PAGE.format(
        long=_peers.LONG,
        machine=_peers.machine(),
        before=before,
        after=_peers.load(),
        minutes=(time.perf_counter() - start) / 60,
        k=_peers_selection.K,
        epsilon=_peers_selection.EPSILON,
        clients=_peers_service.CLIENTS,
        answers_k=_peers_answers.K,
        top=_peers_events.TOP,
        threads=_peers_events.THREADS,
        labels=_peers_events.LABELS_PER_USER,
        remarks=REMARKS,
        **parts,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes, some seconds")
    parser.add_argument("--out", type=Path, default=None, help="file to write")
    options = parser.parse_args()
    out = options.out or (
        None if options.smoke else HERE.parent / "docs" / "notes" / "benchmarks.md"
    )
    text = page(options.smoke)
    if out is None:
        print(text)
    else:
        out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
