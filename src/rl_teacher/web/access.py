"""Who may come in: a gate before everything, closed to whoever is not named.

The token comes in a link, once, and becomes a cookie; programs send it as a bearer token.
"""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_teacher.web.plainpage import no_access
from rl_teacher.web.problems import FORBIDDEN, NO_CREDENTIAL, problem, response_of
from rl_teacher.web.settings import Settings

COOKIE_AGE_S = 90 * 24 * 3600
HARMLESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
NO_PAGES = ("/api/", "/assets/", "/readyz", "/healthz")
"""Where programs ask: they get problem details, and no cookie for a link."""

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class Access(StrEnum):
    """Who may ask."""

    ANYBODY = "anybody"
    LABELER = "labeler"


def open_to(access: Access) -> Callable[[Endpoint], Endpoint]:
    """Declare who may ask; what declares nothing is closed to everybody."""

    def declare(endpoint: Endpoint) -> Endpoint:
        endpoint.access = access  # pyright: ignore[reportFunctionMemberAccess]
        return endpoint

    return declare


def declared_access(route: BaseRoute) -> Access | None:
    """What a route declares."""
    return getattr(getattr(route, "endpoint", None), "access", None)


def labeler_of(request: Request) -> str:
    """Who asks: the gate found it out from the credential."""
    return request.state.labeler


Labeler = Annotated[str, Depends(labeler_of)]


class Gate:
    """Lets through whoever shows the token, and nobody else."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], settings: Settings) -> None:
        self._app = app
        self._routes = routes
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            refusal = self._look_at(Request(scope))
            await (refusal or self._app)(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    def _look_at(self, request: Request) -> Response | None:
        """What is answered instead; None lets the request through."""
        is_known, access = self._access_to(request.scope)
        if access is Access.ANYBODY:
            return None
        if is_link(request):
            return self._exchange(request)
        if not self._shows_token(request):
            return refuse_stranger(request)
        if is_known and access is None:
            return refuse(request, "This is open to nobody.")
        if is_by_cookie(request) and not is_harmless(request) and not is_same_origin(request):
            return refuse(
                request,
                "The request comes from another site's page. Send it from this service's own "
                "page, or from a program with an Authorization header.",
            )
        request.state.labeler = self._settings.labeler
        return None

    def _access_to(self, scope: Scope) -> tuple[bool, Access | None]:
        """Whether there is such a route, and who may ask it."""
        for route in self._routes:
            match, _ = route.matches(scope)
            if match is Match.FULL:
                return True, declared_access(route)
        return False, None

    def _shows_token(self, request: Request) -> bool:
        """Note: a wrong bearer token is refused even beside a right cookie."""
        bearers = bearer_tokens(request)
        if bearers:
            return all(self._is_token(each) for each in bearers)
        return self._is_token(request.cookies.get(cookie_name(self._settings.token), ""))

    def _is_token(self, given: str) -> bool:
        """In a time that tells nothing about how much of it is right."""
        return secrets.compare_digest(given.encode(errors="replace"), self._settings.token.encode())

    def _exchange(self, request: Request) -> Response:
        """A cookie for the token in a link, which then vanishes from the address bar."""
        given = [value for key, value in query_of(request) if key == "token"]
        if not all(self._is_token(each) for each in given):
            return no_access("The key in this link is not, or no longer, the right one.")
        response = RedirectResponse(without_token(request), 303, {"Cache-Control": "no-store"})
        response.set_cookie(
            cookie_name(self._settings.token),
            self._settings.token,
            max_age=COOKIE_AGE_S,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )
        return response


def cookie_name(home_token: str) -> str:
    """What a home's cookie is called; it tells nothing of the token.

    Note: a browser gives a cookie to every port of a host, so services of two homes on one machine
    would replace each other's if both had one name.
    """
    return f"rl_teacher_{hashlib.sha256(home_token.encode()).hexdigest()[:8]}"


def is_page(request: Request) -> bool:
    """Whether a person looks at what is answered."""
    return request.method in ("GET", "HEAD") and not request.url.path.startswith(NO_PAGES)


def is_link(request: Request) -> bool:
    """Whether a page is asked for with a token in its address."""
    return is_page(request) and any(key == "token" for key, _ in query_of(request))


def query_of(request: Request) -> list[tuple[str, str]]:
    """What follows the question mark, in its order."""
    text = request.scope.get("query_string", b"").decode("latin-1")
    return parse_qsl(text, keep_blank_values=True)


def without_token(request: Request) -> str:
    """The same page, as a path on this very service.

    Note: one slash at the front; a browser takes two for another host.
    """
    path = "/" + quote(request.scope["path"].lstrip("/"))
    rest = [(key, value) for key, value in query_of(request) if key != "token"]
    return f"{path}?{urlencode(rest)}" if rest else path


def bearer_tokens(request: Request) -> list[str]:
    """The tokens in Authorization headers; other schemes are a reverse proxy's own."""
    split = [value.split(None, 1) for value in request.headers.getlist("authorization")]
    return ["".join(token).strip() for scheme, *token in filter(None, split) if is_bearer(scheme)]


def is_bearer(scheme: str) -> bool:
    """Whether an Authorization header is about our token."""
    return scheme.lower() == "bearer"


def is_by_cookie(request: Request) -> bool:
    """Whether a browser may have sent the credential by itself."""
    return not bearer_tokens(request)


def is_harmless(request: Request) -> bool:
    """Whether nothing is changed by it."""
    return request.method in HARMLESS_METHODS


def is_same_origin(request: Request) -> bool:
    """Whether this service's own page sent it, as the browser says.

    Note: behind a reverse proxy the scheme may differ, so `Origin` is held against `Host` alone.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin", "")
    return bool(host_of(origin)) and host_of(origin) == request.headers.get("host", "").lower()


def host_of(origin: str) -> str:
    """Host and port of an origin; nothing where it is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def refuse_stranger(request: Request) -> Response:
    """For whoever shows no token, or a wrong one."""
    if is_page(request):
        return no_access("It shows what an agent is taught, so it opens only with a key.")
    said = problem(
        NO_CREDENTIAL,
        "No access token came with the request, or a wrong one. Open the link that `rl-teacher "
        "serve` printed, or send `Authorization: Bearer` with the token.",
    )
    return response_of(said, unread_body_headers(request))


def refuse(request: Request, why: str) -> Response:
    """For whoever is known, but may not."""
    return response_of(problem(FORBIDDEN, why), unread_body_headers(request))


def unread_body_headers(request: Request) -> dict[str, str]:
    """Close the connection instead of reading a body that nobody wants."""
    return {} if is_harmless(request) else {"Connection": "close"}
