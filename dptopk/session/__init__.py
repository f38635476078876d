"""Questions and what pays for them: Session, and Client over HTTP."""

from dptopk.session.client import Client as Client
from dptopk.session.session import Session as Session
from dptopk.session.stream_calendar import Calendar as Calendar
from dptopk.session.stream_session import StreamSession as StreamSession
