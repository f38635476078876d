"""Questions and what pays for them: Session, and Client over HTTP."""

from dptopk.session.client import Client as Client
from dptopk.session.session import Session as Session
from dptopk.session.stream_session import Calendar as Calendar, StreamSession as StreamSession
