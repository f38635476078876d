"""Questions and what pays for them: Session, and Client over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.session.client import Client as Client
    from dptopk.session.session import Session as Session
    from dptopk.session.stream import Calendar as Calendar, StreamSession as StreamSession
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__, {".client": "Client", ".session": "Session", ".stream": "Calendar StreamSession"}
    )
