"""The rollout prefix is taken off, and says which episode a request belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from ckptfmt.identity import EpisodeId
from participant.attribution import current_episode
from participant.http.rollout_prefix import RolloutPrefixMiddleware
from participant.testing.asgi import request

pytestmark = pytest.mark.anyio


class Seen:
    """An app that remembers what it was called with."""

    def __init__(self) -> None:
        self.path = ""
        self.raw_path = b""
        self.episode: EpisodeId | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve anything."""
        self.path, self.raw_path = scope["path"], scope["raw_path"]
        self.episode = current_episode.get()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


STRIPPED = [
    ("/ng-rollout/4-2/verify", "/verify", EpisodeId("4-2")),
    ("/ng-rollout/4-2-a3/v1/chat/completions", "/v1/chat/completions", EpisodeId("4-2", 3)),
    ("/ng-rollout/x-a0/run", "/run", EpisodeId("x-a0")),
    ("/ng-rollout/x", "/", EpisodeId("x")),
    ("/ng-rollout/x/", "/", EpisodeId("x")),
    ("/ng-rollout/x/ng-rollout/y/z", "/ng-rollout/y/z", EpisodeId("x")),
    ("/verify", "/verify", None),
    ("/ng-rollouts/x/y", "/ng-rollouts/x/y", None),
    ("/ng-rollout", "/ng-rollout", None),
]


@pytest.mark.parametrize(("path", "rest", "episode"), STRIPPED)
async def test_the_prefix_is_taken_off_path_and_raw_path(
    path: str, rest: str, episode: EpisodeId | None
) -> None:
    """P8."""
    seen = Seen()
    reply = await request(RolloutPrefixMiddleware(seen), "POST", path)
    assert reply.status == 204
    assert (seen.path, seen.raw_path, seen.episode) == (rest, rest.encode(), episode)
    assert current_episode.get() is None


REFUSED = ["bad!id", "-a1", "", "x-a1-a2", "a" * 201, ".x", "a b", "é"]


@pytest.mark.parametrize("key", REFUSED)
async def test_a_malformed_key_is_refused_and_never_repaired(key: str) -> None:
    """P2, P5: before any side effect."""
    seen = Seen()
    reply = await request(RolloutPrefixMiddleware(seen), "POST", f"/ng-rollout/{key}/run")
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_rollout_id")
    assert seen.path == ""


async def test_a_key_that_hides_a_slash_is_refused() -> None:
    seen = Seen()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/ng-rollout/a/b/x",
        "raw_path": b"/ng-rollout/a%2Fb/x",
        "headers": [],
    }
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("nobody reads")

    async def send(message: Any) -> None:
        sent.append(message)

    await RolloutPrefixMiddleware(seen)(scope, receive, send)
    assert sent[0]["status"] == 400
    assert seen.path == ""


async def test_an_encoded_path_behind_the_prefix_stays_encoded() -> None:
    seen = Seen()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/ng-rollout/r/a b",
        "raw_path": b"/ng-rollout/r/a%20b",
        "headers": [],
    }

    async def nothing(message: Any = None) -> Any:
        return {"type": "http.disconnect"}

    await RolloutPrefixMiddleware(seen)(scope, nothing, nothing)
    assert (seen.path, seen.raw_path) == ("/a b", b"/a%20b")


async def test_a_lifespan_passes_untouched() -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)

    async def nothing(message: Any = None) -> Any:
        return {}

    scope = {"type": "lifespan"}
    await RolloutPrefixMiddleware(app)(scope, nothing, nothing)
    assert scopes == [scope]


MOUNTED = [
    ("/api", "/api/ng-rollout/4-2/verify", "/api/verify", b"/api/verify"),
    ("/api/", "/api/ng-rollout/4-2/verify", "/api/verify", b"/api/verify"),
    ("/a/b", "/a/b/ng-rollout/4-2", "/a/b/", b"/a/b/"),
    ("/api", "/ng-rollout/4-2/verify", "/verify", b"/verify"),
    ("/ng", "/ng-rollout/4-2/verify", "/verify", b"/verify"),
]


@pytest.mark.parametrize(("root", "path", "rest", "raw_rest"), MOUNTED)
async def test_the_prefix_stands_behind_the_place_that_the_app_is_mounted_at(
    root: str, path: str, rest: str, raw_rest: bytes
) -> None:
    """A server behind a proxy, say, which serves below a root path."""
    seen = Seen()

    async def below_root(scope: Any, receive: Any, send: Any) -> None:
        await RolloutPrefixMiddleware(seen)(dict(scope, root_path=root), receive, send)

    assert (await request(below_root, "POST", path)).status == 204
    assert (seen.path, seen.raw_path, seen.episode) == (rest, raw_rest, EpisodeId("4-2"))


LOCATIONS = [
    ("/run?x=1", "/ng-rollout/r/run?x=1"),
    ("http://here:1/run", "http://here:1/ng-rollout/r/run"),
    ("/ng-rollout/r/run", "/ng-rollout/r/run"),
    ("http://elsewhere/run", "http://elsewhere/run"),
    ("below", "below"),
    ("", ""),
]


@pytest.mark.parametrize(("location", "told"), LOCATIONS)
async def test_a_redirect_keeps_the_episode(location: str, told: str) -> None:
    """A trailing slash would make an untagged call of one that belongs to an episode."""

    async def redirect(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"location", location.encode())]
        await send({"type": "http.response.start", "status": 307, "headers": headers})
        await send({"type": "http.response.body"})

    app = RolloutPrefixMiddleware(redirect)
    reply = await request(app, "POST", "/ng-rollout/r/run/", headers={"host": "here:1"})
    assert reply.headers["location"] == told
    untagged = await request(app, "POST", "/run/", headers={"host": "here:1"})
    assert untagged.headers["location"] == location
