"""Access control: middleware that rejects every request without a sufficient credential."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_teacher.common.errors import RlTeacherError
from rl_teacher.runs.folder import validate_name
from rl_teacher.store.records import Identity
from rl_teacher.store.sql import experiment_not_found
from rl_teacher.web.authentication import Authenticator, RateLimited, is_owner
from rl_teacher.web.html_pages import rate_limited_page, unauthorized_page
from rl_teacher.web.limits import network_of, retry_after
from rl_teacher.web.problems import (
    FORBIDDEN,
    NO_CREDENTIAL,
    NOT_FOUND,
    TOO_MANY,
    problem,
    problem_from_error,
    response_of,
)

COOKIE_AGE_S = 90 * 24 * 3600
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
API_PREFIXES = ("/api/", "/assets/", "/readyz", "/healthz")
"""Path prefixes for programs: errors are problem details, and tokens in the query set no cookie."""

EXPERIMENT_PATH = "/api/v1/experiments/{name}"
"""Path prefix of every route that concerns one experiment."""

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class Access(StrEnum):
    """Role that a route requires."""

    PUBLIC = "anybody"
    LABELER = "labeler"
    OWNER = "owner"


def requires(access: Access) -> Callable[[Endpoint], Endpoint]:
    """Declare the access that a route requires; a route without a declaration is closed."""

    def declare(endpoint: Endpoint) -> Endpoint:
        endpoint.access = access  # pyright: ignore[reportFunctionMemberAccess]
        return endpoint

    return declare


def required_access(route: BaseRoute) -> Access | None:
    """Return the declared access of a route."""
    return getattr(getattr(route, "endpoint", None), "access", None)


def requested_experiment(route: BaseRoute, found: Scope) -> str | None:
    """Return the experiment named in the path of an API request."""
    if not getattr(route, "path", "").startswith(EXPERIMENT_PATH):
        return None
    return found["path_params"]["name"]


def identity_of(request: Request) -> Identity:
    """Return the identity that the middleware has authenticated."""
    return request.state.identity


def labeler_of(request: Request) -> str:
    """Return the name of the authenticated user."""
    return identity_of(request).name


CurrentIdentity = Annotated[Identity, Depends(identity_of)]
LabelerName = Annotated[str, Depends(labeler_of)]


class AccessMiddleware:
    """Middleware that authenticates requests and checks their access."""

    def __init__(
        self, app: ASGIApp, routes: Sequence[BaseRoute], authenticator: Authenticator
    ) -> None:
        self._app = app
        self._routes = routes
        self._identities = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            refusal = await self._rejection(Request(scope))
            await (refusal or self._app)(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def _rejection(self, request: Request) -> Response | None:
        """Return the response to a rejected request; None accepts the request."""
        try:
            return await self._check(request)
        except RateLimited as error:
            return too_many_requests(request, error.wait_s)
        except (RlTeacherError, SQLAlchemyError) as error:
            return response_of(problem_from_error(error), unread_body_headers(request))

    async def _check(self, request: Request) -> Response | None:
        is_known, access, experiment = self._match_route(request.scope)
        if access is Access.PUBLIC:
            return self._check_anonymous(request)
        if has_token(request):
            return await self._exchange_token(request)
        credentials = credentials_of(request)
        identity = await self._authenticate(credentials, request)
        if identity is None:
            return unauthorized(request)
        request.state.identity = identity
        request.state.credential = credentials[0]
        if is_known and access is None:
            return refuse(request, "This is open to nobody.")
        if experiment is not None and not identity.sees(experiment):
            raise experiment_not_found(validate_name(experiment))
        return self._check_identity(request, access, identity)

    def _check_identity(
        self, request: Request, access: Access | None, identity: Identity
    ) -> Response | None:
        if access is Access.OWNER and not is_owner(identity):
            return not_found(request)
        if is_by_cookie(request) and not is_safe(request) and not is_same_origin(request):
            return cross_site_forbidden(request)
        return None

    def _check_anonymous(self, request: Request) -> Response | None:
        """Check a request to a public route.

        Programs send no origin; every browser does.
        """
        if is_safe(request):
            return None
        if has_origin(request) and not is_same_origin(request):
            return cross_site_forbidden(request)
        self._identities.count_anonymous(client_network(request))
        return None

    def _match_route(self, scope: Scope) -> tuple[bool, Access | None, str | None]:
        """Return whether the route exists, its required access and the requested experiment.

        A path that exists with other methods is as closed as the most closed of them, because the
        response would reveal that it exists.
        """
        near: list[Access | None] = []
        for route in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                return True, required_access(route), requested_experiment(route, found)
            if match is Match.PARTIAL:
                near.append(required_access(route))
        return False, Access.OWNER if near and set(near) == {Access.OWNER} else None, None

    async def _authenticate(self, credentials: Sequence[str], request: Request) -> Identity | None:
        """Authenticate a request; a wrong bearer token is rejected despite a valid cookie."""
        if len(set(credentials)) != 1 or not credentials[0]:
            return None
        return await self._identities.of(credentials[0], client_network(request))

    async def _exchange_token(self, request: Request) -> Response:
        """Exchange the token in a link for a cookie and redirect to the address without it."""
        tokens = [value for key, value in query_of(request) if key == "token"]
        if await self._authenticate(tokens, request) is None:
            return unauthorized_page("The key in this link is not, or no longer, the right one.")
        response = RedirectResponse(without_token(request), 303, {"Cache-Control": "no-store"})
        set_cookie(response, request, tokens[0])
        return response


def set_cookie(response: Response, request: Request, credential: str) -> None:
    """Store a credential in a cookie that scripts and other sites cannot read."""
    response.set_cookie(
        cookie_name(request),
        credential,
        max_age=COOKIE_AGE_S,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def cookie_name(request: Request) -> str:
    """Return the cookie name of the home that the service belongs to."""
    return request.app.state.services.settings.cookie


def credentials_of(request: Request) -> list[str]:
    """Return the bearer tokens of a request, or else its cookie."""
    return bearer_tokens(request) or [request.cookies.get(cookie_name(request), "")]


def client_network(request: Request) -> str:
    """Return the network that rate limits count the request under."""
    return network_of(request.client.host if request.client else None)


def is_page(request: Request) -> bool:
    """Return whether the response is an HTML page for a person."""
    return request.method in ("GET", "HEAD") and not request.url.path.startswith(API_PREFIXES)


def has_token(request: Request) -> bool:
    """Return whether a page is requested with a token in its address."""
    return is_page(request) and any(key == "token" for key, _ in query_of(request))


def query_of(request: Request) -> list[tuple[str, str]]:
    """Return the query parameters in their order."""
    text = request.scope.get("query_string", b"").decode("latin-1")
    return parse_qsl(text, keep_blank_values=True)


def without_token(request: Request) -> str:
    """Return the requested path and query without the token.

    The path starts with a single slash: a browser takes two for another host.
    """
    path = "/" + quote(request.scope["path"].lstrip("/"))
    rest = [(key, value) for key, value in query_of(request) if key != "token"]
    return f"{path}?{urlencode(rest)}" if rest else path


def bearer_tokens(request: Request) -> list[str]:
    """Return the bearer tokens; other schemes belong to a reverse proxy."""
    split = [value.split(None, 1) for value in request.headers.getlist("authorization")]
    return ["".join(token).strip() for scheme, *token in filter(None, split) if is_bearer(scheme)]


def is_bearer(scheme: str) -> bool:
    """Return whether an Authorization scheme is Bearer."""
    return scheme.lower() == "bearer"


def is_by_cookie(request: Request) -> bool:
    """Return whether a browser may have attached the credential by itself."""
    return not bearer_tokens(request)


def is_safe(request: Request) -> bool:
    """Return whether the HTTP method is safe."""
    return request.method in SAFE_METHODS


def is_same_origin(request: Request) -> bool:
    """Return whether the browser reports that the page of this service sent the request.

    Behind a reverse proxy the scheme may differ, so only the host of `Origin` is compared.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin", "")
    return bool(host_of(origin)) and host_of(origin) == request.headers.get("host", "").lower()


def has_origin(request: Request) -> bool:
    """Return whether the request names the page that sent it."""
    return "sec-fetch-site" in request.headers or "origin" in request.headers


def host_of(origin: str) -> str:
    """Return host and port of an origin; an empty string if it is malformed."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def unauthorized(request: Request) -> Response:
    """Return the response to a request without a valid credential."""
    if is_page(request):
        return unauthorized_page("It shows what an agent is taught, so it opens only with a key.")
    error = problem(
        NO_CREDENTIAL,
        "No credential came with the request, or one that is wrong, expired or revoked. Open the "
        "link that you were given or that `rl-teacher serve` printed, or send `Authorization: "
        "Bearer` with the token.",
    )
    return response_of(error, unread_body_headers(request))


def refuse(request: Request, why: str) -> Response:
    """Return the response to an authenticated request that is not allowed."""
    return response_of(problem(FORBIDDEN, why), unread_body_headers(request))


def cross_site_forbidden(request: Request) -> Response:
    """Return the response to a request from another site's page."""
    return refuse(
        request,
        "The request comes from another site's page. Send it from this service's own page, or "
        "from a program with an Authorization header.",
    )


def not_found(request: Request) -> Response:
    """Return the response of a missing resource, which hides that the route exists."""
    return response_of(problem(NOT_FOUND, "Not Found"), unread_body_headers(request))


def too_many_requests(request: Request, wait_s: float) -> Response:
    """Return the response to a request over the rate limit."""
    if is_page(request):
        return rate_limited_page(retry_after(wait_s))
    error = problem(
        TOO_MANY,
        f"More came than is answered. Wait {retry_after(wait_s)} seconds, and ask less often.",
    )
    headers = {"Retry-After": retry_after(wait_s), **unread_body_headers(request)}
    return response_of(error, headers)


def unread_body_headers(request: Request) -> dict[str, str]:
    """Return headers that close the connection, so that the body need not be read."""
    return {} if is_safe(request) else {"Connection": "close"}
