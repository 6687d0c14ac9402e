"""Sessions in signed cookies."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from participant.http.session_cookies import SessionCookieMiddleware
from participant.testing.asgi import AsgiReply, request

pytestmark = pytest.mark.anyio


async def serve(request: Request) -> JSONResponse:
    """Set, take back or tell the session."""
    body = await request.json()
    if "set" in body:
        request.session["session_id"] = body["set"]
    if "clear" in body:
        request.session.clear()
    return JSONResponse({"session_id": request.session.get("session_id")})


def app(secret: str = "s") -> Starlette:
    """A process with this secret."""
    return Starlette(
        routes=[Route("/x", serve, methods=["POST"])],
        middleware=[Middleware(SessionCookieMiddleware, secret=secret)],
    )


async def call(server: Starlette, body: bytes = b"{}", cookie: str = "") -> AsgiReply:
    """One request."""
    return await request(server, "POST", "/x", body, {"cookie": cookie} if cookie else None)


async def cookie_of(server: Starlette, session_id: str = "abc") -> str:
    """The cookie of a new session, as a client sends it back."""
    reply = await call(server, b'{"set": "%s"}' % session_id.encode())
    return reply.headers["set-cookie"].partition(";")[0]


async def test_the_session_comes_back_also_to_another_process() -> None:
    cookie = await cookie_of(app())
    reply = await call(app(), cookie=cookie)
    assert reply.json == {"session_id": "abc"}
    assert "set-cookie" not in reply.headers


async def test_a_cookie_is_for_its_server_only_and_not_for_scripts() -> None:
    reply = await call(app(), b'{"set": "abc"}')
    attributes = reply.headers["set-cookie"].split("; ")[1:]
    assert {"path=/", "httponly", "samesite=lax"} <= set(attributes)


async def test_a_changed_or_foreign_cookie_is_none() -> None:
    cookie = await cookie_of(app())
    name, _, value = cookie.partition("=")
    session_id, _, mark = value.partition(".")
    other = (await cookie_of(app("other"))).partition("=")[2]
    forged = [
        f"abd.{mark}",
        f"{session_id}.{mark[:-1]}",
        session_id,
        f".{mark}",
        "",
        other,
        "\u00e9",
    ]
    for wrong in forged:
        reply = await call(app(), cookie=f"{name}={wrong}")
        assert reply.json == {"session_id": None}, wrong
        assert "set-cookie" not in reply.headers


async def test_a_session_that_a_handler_removed_is_taken_back() -> None:
    cookie = await cookie_of(app())
    reply = await call(app(), b'{"clear": 1}', cookie)
    assert "max-age=0" in reply.headers["set-cookie"]
    assert "set-cookie" not in (await call(app(), b'{"clear": 1}')).headers


async def test_an_id_that_no_cookie_carries_is_refused() -> None:
    with pytest.raises(ValueError, match="session id"):
        await call(app(), b'{"set": "a;b"}')
    with pytest.raises(ValueError, match="secret"):
        SessionCookieMiddleware(app(), "")
