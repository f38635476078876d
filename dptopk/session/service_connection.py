"""Requests to a service over HTTP: one at a time, and one question asked until it has an answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from dptopk._internal import validate
from dptopk._internal.json_text import canonical_json
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError


class ServiceError(DptopkError):
    """The service refused a call, or cannot be reached.

    Attributes:
        status: the HTTP status; 0 when there was no answer.
        code: the service's word for the reason, such as "unauthorized".
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


class _NoRedirects(HTTPRedirectHandler):
    """A handler that follows no redirect, since that would send the token to wherever an answer
    points.
    """

    def redirect_request(self, *_: object) -> None:
        """Return no request, so that the redirect becomes an error with its status."""


_OPENER = build_opener(_NoRedirects)
# For how many seconds the service may hold a request until it has the answer. Chosen by hand: well
# below 30 to 60 seconds, the usual time after which proxies end a request without an answer.
SECONDS_PER_REQUEST = 10
# The pauses, in seconds, after which a question is sent again: each is twice the one before. The
# first is short beside a question that takes a second; the longest is a bearable delay of an
# answer that is there.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
# The last HTTP status that is about the request alone, not about the question in it: 401.
LAST_OF_THE_REQUEST = 401


class ServiceConnection:
    """The address of a service, with the token that each request carries.

    Args:
        url: the address of the service, of http or https.
        token: the analyst's token.
        patience: as for ``Client``, in seconds: also the longest wait for a byte of an answer.
        longest: as for ``Client``, in seconds.

    Raises:
        InvalidParameter: on a URL that is not http or https, a token that no header can carry, or
            seconds that are not finite and above 0.
    """

    def __init__(self, url: str, token: str, *, patience: float, longest: float) -> None:
        _refuse_other_schemes(url)
        self._url = url.rstrip("/")
        self._token = header_value(token=token)
        self._patience = validate.positive(patience=patience)
        self._longest = validate.positive(longest=longest)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send one request to the service, and return its JSON.

        Args:
            method: the HTTP method.
            path: the path after /v1.
            body: what is sent as JSON; None: nothing.
            headers: further headers; None: none.

        Raises:
            DptopkError: the refusal of the service, or ServiceError if it cannot be reached.
        """
        data = None if body is None else canonical_json(body).encode()
        all_headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            **(headers or {}),
        }
        url = f"{self._url}/v1{path}"
        # __init__ has checked that the URL is http or https.
        request = Request(url, data=data, headers=all_headers, method=method)  # noqa: S310
        try:
            status, text = _response(request, self._patience)
            answer = json.loads(text) if status < 300 else None
        except (HTTPException, OSError, ValueError) as error:
            # HTTPException: the service was killed while it sent its answer.
            raise ServiceError(
                0, "unreachable", f"the service cannot be reached ({type(error).__name__})"
            ) from None
        if status >= 300:
            raise _refusal(status, text)
        return answer

    def call_until_answered(
        self, path_of: Callable[[], str], body: dict[str, Any], key: str
    ) -> dict[str, Any]:
        """Send a question with the same key until the service has an answer, or ``patience`` or
        ``longest`` is over; return the answer.

        Args:
            path_of: the function that returns the path of the question after /v1; it may ask the
                service, and is called again where that fails.
            body: the question as JSON.
            key: the key under which it is charged once.

        Raises:
            DptopkError: the refusal of the service where waiting does not end it: BudgetExceeded,
                InvalidParameter or ServiceError.
            LedgerError: if the ledger was busy for as long as ``patience``.
            ServiceError: also if ``longest`` is over, or if the service was overloaded, failed or
                could not be reached for as long as ``patience``.
        """
        start = time.monotonic()
        end = start + self._patience
        pause = FIRST_PAUSE
        while True:
            try:
                path_that_waits = f"{path_of()}?wait={SECONDS_PER_REQUEST}"
                answer = self.call("POST", path_that_waits, body, {"Idempotency-Key": key})
                if _is_complete(answer):
                    return dict(answer)
                pause = FIRST_PAUSE  # the service is there, and computes
            except (ServiceError, LedgerError) as error:
                if not is_transient(error) or time.monotonic() + pause > end:
                    raise
            if time.monotonic() - start > self._longest:
                raise ServiceError(
                    202, "unfinished", f"there was no answer within {self._longest:g} seconds"
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def header_value(**arguments: str) -> str:
    """Return the value of the one keyword argument, if an HTTP header can carry it.

    Any other value would fail while it is sent, which looks like a broken connection.

    Raises:
        InvalidParameter: naming the argument.
    """
    ((name, value),) = arguments.items()
    if not (validate.text(**arguments).isascii() and value.isprintable()):
        raise InvalidParameter(f"{name} must be printable ASCII text, without a line break")
    return str(value)


def is_transient(error: DptopkError) -> bool:
    """Return whether a retry with the same key may succeed.

    That is so if the ledger is busy, the service was not reached (status 0), asks to wait (429) or
    failed (500 and above).
    """
    if isinstance(error, LedgerError):
        return True
    if isinstance(error, ServiceError):
        return error.status in {0, 429} or error.status >= 500
    return False


def is_final(error: DptopkError) -> bool:
    """Return whether a question is refused permanently, so that its key is not needed again.

    An answer that is not there yet (status 202), a redirect, and a refusal of the request or of the
    token (400 or 401) say nothing about the question.
    """
    if is_transient(error):
        return False
    says_nothing = isinstance(error, ServiceError) and error.status <= LAST_OF_THE_REQUEST
    return not says_nothing


def _refuse_other_schemes(url: str) -> None:
    """Refuse an address that is not one of http or https.

    Raises:
        InvalidParameter: saying what it must begin with, or that it cannot be read.
    """
    text = validate.text(url=url)
    try:
        scheme = urlsplit(text).scheme
    except ValueError:  # such as a bracket that is not closed
        raise InvalidParameter("url is no address of a service") from None
    if scheme not in {"http", "https"}:
        raise InvalidParameter("url must begin with https:// or http://")


def _response(request: Request, timeout: float) -> tuple[int, bytes]:
    """Return the status and the body of the service's response, whatever its status.

    Args:
        request: the request.
        timeout: the number of seconds without a byte after which the service counts as not reached.

    Raises:
        OSError: if there is no response.
        http.client.HTTPException: if it breaks off.
    """
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


def _is_complete(answer: Mapping[str, Any]) -> bool:
    """Return whether the service has sent an answer; False if it sent the name of the job that
    computes it.

    Raises:
        ServiceError: when it is neither.
    """
    if "entry" in answer or "job" in answer:
        return "entry" in answer
    raise ServiceError(0, "unknown", "the service's answer is not understood")


def _refusal(status: int, text: bytes) -> DptopkError:
    """Return a refusal of the service as the error that a Session would raise.

    Args:
        status: the HTTP status.
        text: the body of the answer, JSON with "error" and "message".
    """
    try:
        refusal = json.loads(text)
        code = str(refusal["error"])
        message = str(refusal["message"])
    except (ValueError, KeyError, TypeError):
        code = "unknown"
        message = f"the service answered {status}"
    if code == "invalid":
        return InvalidParameter(message)
    if code == "ledger":
        return LedgerError(message)
    if code == "budget_exceeded":
        # The message is "budget exceeded (why): requested CHARGE; remaining WHAT IS LEFT".
        sentence, _, remaining = message.partition("; remaining ")
        beginning, _, requested = sentence.partition(": requested ")
        why = beginning.removeprefix("budget exceeded").strip(" ()")
        return BudgetExceeded(_requested_charge(requested), remaining, why)
    return ServiceError(status, code, message)


def _requested_charge(requested: str) -> Charge:
    """Return the charge that a refusal names; an empty charge if it cannot be read."""
    try:
        return Charge.parse(requested)
    except DptopkError:
        return Charge()
