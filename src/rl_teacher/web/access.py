"""Access control: middleware that rejects every request without a sufficient credential."""

from collections.abc import Sequence
from enum import StrEnum
from html import escape
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import quote, urlencode, urlsplit

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_teacher.common.errors import RlTeacherError
from rl_teacher.runs.folder import validate_name
from rl_teacher.store.records import Identity
from rl_teacher.store.sql import experiment_not_found
from rl_teacher.web.authentication import SESSION_AGE, Authenticator, is_owner
from rl_teacher.web.problems import Forbidden, NoCredential, error_response, html_page

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
API_PREFIXES = ("/api/", "/assets/", "/readyz", "/healthz", "/metrics")
"""Path prefixes for programs: a token in the query sets no cookie."""

EXPERIMENT_PATH = "/api/v1/experiments/{name}"
"""Path prefix of every route that concerns one experiment."""


class Access(StrEnum):
    """Role that a route requires."""

    PUBLIC = "anybody"
    LABELER = "labeler"
    OWNER = "owner"


class PublicRoute(APIRoute):
    """Route for everybody."""

    access = Access.PUBLIC


class LabelerRoute(APIRoute):
    """Route for everybody with a credential."""

    access = Access.LABELER


class OwnerRoute(APIRoute):
    """Route for owners."""

    access = Access.OWNER


def required_access(route: BaseRoute) -> Access | None:
    """Return the access that a route requires; one of another class is closed."""
    return getattr(route, "access", None)


# Coroutines, because FastAPI runs other dependencies in a thread, which costs 0.2 ms each.
async def identity_of(request: Request) -> Identity:
    """Return the identity that the middleware has authenticated."""
    return request.state.identity


async def labeler_of(request: Request) -> str:
    """Return the name of the authenticated user."""
    return request.state.identity.name


CurrentIdentity = Annotated[Identity, Depends(identity_of)]
LabelerName = Annotated[str, Depends(labeler_of)]


class AccessMiddleware:
    """Middleware that authenticates requests and checks their access."""

    def __init__(
        self, app: ASGIApp, routes: Sequence[BaseRoute], authenticator: Authenticator
    ) -> None:
        self._app = app
        self._routes = routes
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            request = Request(scope)
            try:
                response = await self._check(request)
            except (HTTPException, RlTeacherError, SQLAlchemyError) as error:
                response = error_response(request, error)
            await (response or self._app)(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)

    async def _check(self, request: Request) -> Response | None:
        """Authenticate a request and check its access; a response instead of None ends it."""
        check_host(request)
        is_known, access, experiment = self._match_route(request.scope)
        if access is Access.PUBLIC:
            is_of_browser = "sec-fetch-site" in request.headers or "origin" in request.headers
            if is_of_browser and request.method not in SAFE_METHODS:
                check_same_origin(request)
            return None
        # The cookie replaces the secret, which would stay in the history of the browser.
        if has_secret(request, "code"):
            return await self._use_code(request)
        if has_secret(request, "token"):
            links = request.query_params.getlist("token")
            return await self._sign_in(request, links[0], await self._authenticate(links))
        tokens = bearer_tokens(request)
        credentials = tokens or [request.cookies.get(cookie_name(request), "")]
        identity = await self._authenticate(credentials)
        request.state.identity = identity
        request.state.credential = credentials[0]
        if is_known and access is None:
            raise Forbidden("The route does not declare who has access.")
        if experiment is not None and not identity.sees(experiment):
            raise experiment_not_found(validate_name(experiment))
        if access is Access.OWNER and not is_owner(identity):
            # Exactly the response of a missing route, so that its existence is not disclosed.
            raise HTTPException(404)
        # A browser attaches cookies to requests of other sites; no site can send a bearer token.
        if not tokens and request.method not in SAFE_METHODS:
            check_same_origin(request)
        return None

    async def _sign_in(self, request: Request, token: str, identity: Identity) -> Response:
        """Start a session by a link, unless another site may have opened it."""
        current = await self._authenticator.of(request.cookies.get(cookie_name(request), ""))
        # `none`: the user opened the link outside a page, or typed it. Over plain http, except on
        # loopback, browsers do not send the header.
        site = request.headers.get("sec-fetch-site")
        if site not in (None, "none", "same-origin") and current != identity:
            # A click on this page is `same-origin`.
            link = f'<a href="?{escape(request.url.query)}">Continue as {escape(identity.name)}</a>'
            return html_page("Sign in", f"<p>Another page wants to sign you in.</p><p>{link}</p>")
        response = redirect_without(request, "token")
        if site is not None or current is None or not is_owner(current):
            set_cookie(response, request, token)
        return response

    async def _use_code(self, request: Request) -> Response:
        """Exchange a one-time code for the owner's cookie; with a cookie, it may be used up."""
        response = redirect_without(request, "code")
        codes = request.query_params.getlist("code")
        if len(codes) == 1 and await run_in_threadpool(self._authenticator.redeem_code, codes[0]):
            set_cookie(response, request, request.app.state.services.settings.token)
        else:
            await self._authenticate([request.cookies.get(cookie_name(request), "")])
        return response

    def _match_route(self, scope: Scope) -> tuple[bool, Access | None, str | None]:
        """Return whether the route exists, its required access and the requested experiment.

        A path that exists with other methods is as closed as the most closed of them, because the
        response would reveal that it exists.
        """
        near: list[Access | None] = []
        for route in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                is_experiment = getattr(route, "path", "").startswith(EXPERIMENT_PATH)
                experiment = found["path_params"]["name"] if is_experiment else None
                return True, required_access(route), experiment
            if match is Match.PARTIAL:
                near.append(required_access(route))
        access = Access.OWNER if near and set(near) == {Access.OWNER} else None
        return False, access, None

    async def _authenticate(self, credentials: Sequence[str]) -> Identity:
        """Authenticate a request.

        Raises:
            NoCredential: The credentials are missing, invalid or several.
        """
        if len(set(credentials)) == 1 and credentials[0]:
            identity = await self._authenticator.of(credentials[0])
            if identity is not None:
                return identity
        raise NoCredential(
            "The request has no credential, or one that is wrong, expired or revoked. Open the "
            "link that you received or that `rl-teacher teach` or `rl-teacher serve` printed: it "
            "contains the access key, and this browser stores it. Logs leave the key out: add "
            "`?token=` and the content of the file `access-token` in the home. Programs send the "
            "key in the header `Authorization: Bearer KEY`."
        )


def set_cookie(response: Response, request: Request, credential: str) -> None:
    """Start a session, in a cookie that scripts and other sites cannot read."""
    authenticator: Authenticator = request.app.state.services.authenticator
    response.set_cookie(
        cookie_name(request),
        authenticator.start_session(credential),
        max_age=int(SESSION_AGE.total_seconds()),
        secure=request.url.scheme == "https",
        httponly=True,
        # Not strict: the first request after a click on a link elsewhere needs the cookie.
        samesite="lax",
    )


def cookie_name(request: Request) -> str:
    """Return the cookie name of the home that the service belongs to."""
    return request.app.state.services.settings.cookie


def has_secret(request: Request, name: str) -> bool:
    """Return whether a page is requested with a token or a code in its address."""
    is_page = not request.url.path.startswith(API_PREFIXES)
    is_read = request.method in ("GET", "HEAD")
    return is_read and is_page and name in request.query_params


def redirect_without(request: Request, name: str) -> Response:
    """Redirect to the requested path and query without a secret."""
    # A browser takes two slashes at the start for another host.
    path = "/" + quote(request.scope["path"].lstrip("/"))
    rest = [each for each in request.query_params.multi_items() if each[0] != name]
    url = f"{path}?{urlencode(rest)}" if rest else path
    return RedirectResponse(url, 303, {"Cache-Control": "no-store"})


def bearer_tokens(request: Request) -> list[str]:
    """Return the bearer tokens; other schemes belong to a reverse proxy."""
    split = [value.split(None, 1) for value in request.headers.getlist("authorization")]
    return [
        "".join(token).strip()
        for scheme, *token in filter(None, split)
        if scheme.lower() == "bearer"
    ]


def check_host(request: Request) -> None:
    """Check that a request addresses the service by a name of its own, or by an IP address.

    Another site can let its name lead here; its pages would have the same origin, and invites would
    have its name.

    Raises:
        Forbidden: The name is another.
    """
    hosts = request.app.state.services.settings.hosts
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        if hosts and host not in hosts:
            ip_address(host)
    except ValueError as error:
        raise Forbidden(
            "The service does not have the name in the address. Start it with `rl-teacher serve "
            "--public-url`, followed by the address that browsers open."
        ) from error


def check_same_origin(request: Request) -> None:
    """Check that a page of this service sent the request, as far as the browser reports it.

    Behind a reverse proxy the scheme may differ, so only the host of `Origin` is compared.

    Raises:
        Forbidden: Another site's page sent it.
    """
    try:
        origin = urlsplit(request.headers.get("origin", "")).netloc.lower()
    except ValueError:
        origin = ""
    is_same_host = origin != "" and origin == request.headers.get("host", "").lower()
    site = request.headers.get("sec-fetch-site", "same-origin" if is_same_host else "")
    if site != "same-origin":
        raise Forbidden(
            "The request comes from another site's page. Send it from a page of this service, or "
            "from a program with an Authorization header."
        )
