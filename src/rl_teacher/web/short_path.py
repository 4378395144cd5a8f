"""Requests that labelers wait for, without most layers of Starlette and FastAPI.

Those layers take more of the service's processor time than the database does. The routes are
declared like all others, which documents them and handles whatever is not a plain, valid request.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response | None]]
"""Returns the response to a request, or None if the declared endpoint has to handle it."""


class ShortPath:
    """Middleware that calls the handlers of some endpoints directly.

    It follows the one that checks access and sets `endpoint` in the state of the request.
    """

    def __init__(self, app: ASGIApp, handlers: Mapping[Callable[..., Any], Handler]) -> None:
        """Create the middleware.

        Args:
            app: Application that handles the other requests.
            handlers: Handlers by endpoint.
        """
        self._app = app
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        handler = self._handlers.get(scope.get("state", {}).get("endpoint"))
        if handler is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await handler(request)
        except Exception as error:
            response = await handle(request, error)
        if response is not None:
            await response(scope, receive, send)
        else:
            await self._app(scope, replay(request), send)


async def handle(request: Request, error: Exception) -> Response:
    """Handle an exception as the application does."""
    handlers = request.app.exception_handlers
    for error_class in type(error).__mro__:
        if error_class in handlers:
            return await handlers[error_class](request, error)
    raise error


async def read_body(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        HTTPException: The client has closed the connection.
    """
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise HTTPException(400, "The connection was closed before the end of the body.") from error


def replay(request: Request) -> Receive:
    """Return the messages of a request, including a body that was read before."""
    is_body_sent = False

    async def receive() -> Message:
        nonlocal is_body_sent
        if is_body_sent:
            return await request.receive()
        is_body_sent = True
        return {"type": "http.request", "body": await request.body(), "more_body": False}

    return receive
