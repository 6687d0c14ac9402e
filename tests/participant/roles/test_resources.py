"""The role of a resources server, over its routes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

import participant
from ckptfmt.identity import EpisodeId
from participant.http.session_cookies import SessionCookieMiddleware
from participant.roles.resources import ResourcesHooks
from participant.runtime.shell import Components
from participant.testing.asgi import AsgiReply
from participant.testing.clock import settle
from tests.support.role_servers import SETTINGS, Client, RoleServer, refs

pytestmark = pytest.mark.anyio
R1, R2 = EpisodeId("r1"), EpisodeId("r2")


class Notes(ResourcesHooks):
    """A list of notes a session; every handler waits for ``go``, and fails where it is told to."""

    checkpoint_mode = "exported"

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[str, list[str]] = {}
        self.names = iter(f"s{number}" for number in range(1000))
        self.go = asyncio.Event()
        self.go.set()
        self.fails: set[str] = set()
        self.retired: list[str] = []

    async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
        """The notes."""
        return {s: list(self.notes[s]) for s in session_ids if s in self.notes}

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """All of them, unless one is damaged."""
        for session_id, notes in states.items():
            self.notes[session_id] = list(notes)
            if "damage" in notes:
                raise ValueError("damaged")

    async def retire_session_state(self, session_id: str) -> None:
        """Forget."""
        self.retired.append(session_id)
        if "retire" in self.fails:
            raise OSError("stuck")
        self.notes.pop(session_id, None)

    async def serve(self, request: Request) -> JSONResponse:
        """Every route."""
        path = request.url.path
        await self.go.wait()
        if path.endswith("/seed_session"):
            request.session["session_id"] = next(self.names)
            self.notes[request.session["session_id"]] = []
        elif path.endswith("/note"):
            # What a careless server does: an empty session for whoever asks.
            notes = self.notes.setdefault(request.session["session_id"], [])
            notes.append((await request.json())["text"])
        elif path.endswith("/close_session"):
            self.notes.pop(request.session.get("session_id", ""), None)
        if path.removeprefix("/") in self.fails:
            return JSONResponse({}, 500)
        if "raise" in self.fails:
            raise RuntimeError("a tool failed")
        return JSONResponse({"notes": self.notes.get(request.session.get("session_id", ""))})


class Judge(Notes):
    """Keeps nothing that matters, and may judge twice."""

    checkpoint_mode = "stateless"
    checkpoint_verify = "replay"


class Undeclared(Notes):
    """Keeps more than its base, and has not said so."""


class Nothing(ResourcesHooks):
    """Declares nothing at all."""


class Server(RoleServer):
    """One of these servers; ``hooks`` are its own."""

    def __init__(
        self, kind: type[ResourcesHooks] = Notes, before: RoleServer | None = None
    ) -> None:
        self.hooks: Any = kind()
        super().__init__(self.make, before.storage if before else None)

    def make(self, components: Components) -> Starlette:
        """The app."""
        serve = getattr(self.hooks, "serve", None)
        paths = ["/seed_session", "/note", "/verify", "/close_session", "/aggregate_metrics"]
        app = Starlette(
            routes=[Route(p, serve, methods=["POST", "GET"]) for p in paths if serve],
            middleware=[Middleware(SessionCookieMiddleware, secret="s")],
        )
        participant.install(
            app, self.hooks, SETTINGS, kind="resources", instance="desk", components=components
        )
        return app

    async def counts(self) -> dict[str, int]:
        """The counts of the report."""
        counts: dict[str, int] = (await self.well("status"))["report"]["counts"]
        return counts


def code_of(reply: AsgiReply) -> tuple[int, str]:
    """Status and code of an error."""
    return reply.status, reply.json["error"]["code"]


async def test_a_seed_binds_and_a_close_or_a_verify_ends_under_the_rollout_prefix() -> None:
    """P8, P104."""
    server = Server()
    for end in ("/close_session", "/verify"):
        client = Client(server, R1)
        reply = await client.post("/seed_session")
        assert reply.headers["x-ng-checkpoint-verify"] == "wait"
        assert await server.counts() == {"inflight": 0, "sessions": 1}
        await client.get("/note", text="a")
        await client.get(end)
        assert await server.counts() == {"inflight": 0, "sessions": 0}
        assert server.hooks.notes == {}
    status = await server.well("status")
    assert (status["mode"], status["verify"]) == ("exported", "wait")


async def test_a_seed_in_flight_blocks_until_it_is_bound() -> None:
    """P104: it is never between the two."""
    server = Server()
    server.hooks.go.clear()
    seed = Client(server, R1).begin("/seed_session")
    await settle()
    prepare = asyncio.ensure_future(server.well("prepare"))
    await settle()
    assert not prepare.done()
    assert (await server.well("status"))["report"]["blockers"] == ["r1"]
    server.hooks.go.set()
    await seed.reply()
    assert (await prepare)["report"]["counts"] == {"inflight": 0, "sessions": 1}


@pytest.mark.parametrize("failure", ["seed_session", "raise"])
async def test_a_failed_seed_leaves_nothing_behind(failure: str) -> None:
    """P99: neither here nor in the server, and prepare works afterwards."""
    server = Server()
    server.hooks.fails.add(failure)
    with contextlib.suppress(RuntimeError):
        await Client(server, R1).post("/seed_session")
    assert await server.counts() == {"inflight": 0, "sessions": 0}
    assert server.hooks.notes == {}
    assert (await server.save(R1))["episode_ids"] == []


async def test_a_seed_that_fails_again_does_not_harm_the_session_that_there_is() -> None:
    server = Server()
    client = Client(server, R1)
    await client.get("/seed_session")
    server.hooks.fails.add("note")
    await client.post("/note", text="kept")
    assert server.hooks.notes == {"s0": ["kept"]}
    assert await server.counts() == {"inflight": 0, "sessions": 1}


async def test_a_seed_whose_reply_breaks_off_leaves_nothing_behind() -> None:
    """P99: it was bound when its first byte left, and nobody has the rest."""
    server = Server()

    async def seed(request: Request) -> StreamingResponse:
        request.session["session_id"] = "cut"
        server.hooks.notes["cut"] = []

        async def body() -> AsyncIterator[bytes]:
            yield b"half"
            raise RuntimeError("the rest failed")

        return StreamingResponse(body())

    server.app.router.routes.insert(0, Route("/seed_session", seed, methods=["POST"]))
    with pytest.raises(RuntimeError):
        await Client(server, R1).post("/seed_session")
    assert await server.counts() == {"inflight": 0, "sessions": 0}
    assert server.hooks.notes == {}


@pytest.mark.parametrize("failure", ["seed_session", "raise"])
async def test_a_second_seed_that_fails_does_not_harm_the_session_that_there_is(
    failure: str,
) -> None:
    """Whether it raises or refuses, of this attempt or of another one."""
    server = Server()
    client = Client(server, R1)
    await client.get("/seed_session")
    await client.get("/note", text="kept")

    async def again(request: Request) -> JSONResponse:
        if failure == "raise":
            raise RuntimeError("no room")
        return JSONResponse({}, 503)

    server.app.router.routes.insert(0, Route("/seed_session", again, methods=["POST"]))
    with contextlib.suppress(RuntimeError):
        await client.post("/seed_session")
    other = Client(server, R1.continuation, client.cookie)
    assert code_of(await other.post("/seed_session")) == (409, "stale_attempt")
    assert server.hooks.notes == {"s0": ["kept"]}
    assert await server.counts() == {"inflight": 0, "sessions": 1}


async def test_a_retired_seed_frees_what_it_had_built() -> None:
    server = Server()
    server.hooks.go.clear()
    server.hooks.names = iter(["half"])
    seed = server.begin("/seed_session", R1)
    await settle()
    await server.well("retire", episode_ids=refs(R1))
    assert code_of(await seed.reply()) == (409, "stale_attempt")
    assert server.hooks.notes == {}


async def test_a_tool_of_a_session_that_is_not_here_is_refused_and_leaves_no_key() -> None:
    """P99, P103: never a fresh empty session under the old cookie."""
    first = Server()
    client = Client(first, R1)
    await client.get("/seed_session")
    fresh = Server()
    for stranger in (Client(fresh, R1, client.cookie), Client(fresh, R1)):
        for path in ("/note", "/verify"):
            assert code_of(await stranger.post(path, text="x")) == (409, "stale_attempt")
    assert fresh.hooks.notes == {}
    assert (await Client(fresh, R1, client.cookie).post("/close_session")).status == 200
    assert (await fresh.well("prepare"))["phase"] == "prepared"


async def test_a_tool_that_outlasts_its_session_does_not_bring_it_back() -> None:
    """P99: a client gave the tool up, and closed; what the tool makes then is nobody's."""
    server = Server()
    client = Client(server, R1)
    await client.get("/seed_session")
    server.hooks.go.clear()
    note = client.begin("/note", text="late")
    await settle()

    async def close(request: Request) -> JSONResponse:
        return JSONResponse({})

    server.app.router.routes.insert(0, Route("/close_session", close, methods=["POST"]))
    await client.get("/close_session")
    server.hooks.go.set()
    assert (await note.reply()).json == {"notes": ["late"]}
    assert server.hooks.notes == {}
    assert await server.counts() == {"inflight": 0, "sessions": 0}


async def test_a_session_serves_only_its_own_episode_and_only_under_the_prefix() -> None:
    """P62."""
    server = Server()
    client = Client(server, R1)
    await client.get("/seed_session")
    other = Client(server, R2, client.cookie)
    for path in ("/note", "/verify", "/close_session", "/seed_session"):
        assert code_of(await other.post(path, text="x")) == (409, "stale_attempt")
    bare = server.begin("/note", None, {"text": "x"}, {"cookie": client.cookie})
    assert code_of(await bare.reply()) == (400, "rollout_id_required")
    assert server.hooks.notes == {"s0": []}
    assert await server.counts() == {"inflight": 0, "sessions": 1}


async def test_tools_need_no_list_and_what_belongs_to_no_episode_passes() -> None:
    """A tool that nobody declared waits too; an aggregate of metrics does not."""
    server = Server()
    client = Client(server, R1)
    await client.get("/seed_session")
    await server.well("prepare")
    note = client.begin("/note", text="late")
    await settle()
    assert server.hooks.notes == {"s0": []}
    assert (await server.begin("/aggregate_metrics", None).reply()).status == 200
    await server.well("resume")
    assert (await note.reply()).json == {"notes": ["late"]}


async def test_a_tool_in_flight_is_waited_for_and_its_change_is_exported() -> None:
    """P100: nothing changes a session while it is exported."""
    server = Server()
    client = Client(server, R1)
    await client.get("/seed_session")
    server.hooks.go.clear()
    note = client.begin("/note", text="in flight")
    await settle()
    prepare = asyncio.ensure_future(server.well("prepare"))
    await settle()
    assert not prepare.done()
    server.hooks.go.set()
    assert (await prepare)["phase"] == "prepared"
    await note.reply()
    await server.well("commit", checkpoint_dir="dir", episode_ids=refs(R1))
    (stored,) = server.storage.stored.values()  # type: ignore[attr-defined]
    assert [record.state.value() for record in stored.records] == [["in flight"]]


async def test_a_verify_in_flight_is_waited_for_and_ends_its_session() -> None:
    """P101: where it may not be replayed."""
    server = Server()
    client = Client(server, R1)
    await client.get("/seed_session")
    server.hooks.go.clear()
    verify = client.begin("/verify")
    await settle()
    prepare = asyncio.ensure_future(server.well("prepare"))
    await settle()
    assert not prepare.done()
    server.hooks.go.set()
    await verify.reply()
    assert (await prepare)["report"]["counts"] == {"inflight": 0, "sessions": 0}
    committed = await server.well("commit", checkpoint_dir="dir", episode_ids=refs(R1))
    assert committed["episode_ids"] == []


async def test_a_verify_that_may_be_replayed_is_not_waited_for_and_its_session_is_saved() -> None:
    """P101: it ends its session only when its reply leaves."""
    server = Server(Judge)
    client = Client(server, R1)
    reply = await client.post("/seed_session")
    assert reply.headers["x-ng-checkpoint-verify"] == "replay"
    server.hooks.go.clear()
    verify = client.begin("/verify")
    await settle()
    assert (await server.well("prepare"))["phase"] == "prepared"
    server.hooks.go.set()
    await settle()
    assert not verify.has_started
    committed = await server.well("commit", checkpoint_dir="dir", episode_ids=refs(R1))
    assert committed["episode_ids"] == ["r1"]
    assert (await server.counts())["sessions"] == 1
    await server.well("resume")
    assert (await verify.reply()).status == 200
    assert (await server.counts())["sessions"] == 0

    again = Server(Judge, server)
    await again.restore(R1)
    assert (await client.moved(again).post("/verify")).status == 200


async def test_a_stateless_session_survives_for_its_clean_up_and_is_bound_to_its_episode() -> None:
    """Without a state there is still a record."""
    server = Server(Judge)
    client = Client(server, R1)
    await client.get("/seed_session")
    assert (await server.save(R1))["episode_ids"] == ["r1"]
    again = Server(Judge, server)
    assert (await again.restore(R1))["restored"] == ["r1-a1"]
    assert (await again.counts())["sessions"] == 1
    await client.moved(again).get("/close_session")
    assert (await again.counts())["sessions"] == 0


@pytest.mark.parametrize("kind", [Nothing, Undeclared])
async def test_a_server_that_declared_nothing_itself_blocks_the_commit_by_name(
    kind: type[ResourcesHooks],
) -> None:
    """P102: it fails closed, and is never exported as something else."""
    server = Server(kind)
    if kind is Undeclared:
        client = Client(server, R1)
        await client.get("/seed_session")
        await client.get("/note", text="served all the same")
    assert (await server.well("status"))["mode"] == "undeclared"
    await server.well("prepare")
    reply = await server.control("commit", checkpoint_dir="dir", episode_ids=refs(R1))
    assert code_of(reply) == (422, "invalid_checkpoint_state")
    for word in ("resources/desk", "checkpoint_mode", kind.__name__):
        assert word in reply.json["error"]["detail"]
    await server.well("resume")
    await server.well("retire", episode_ids=refs(R1))
    assert (await server.counts())["sessions"] == 0
    assert getattr(server.hooks, "notes", {}) == {}


async def test_an_undeclared_server_restores_nothing() -> None:
    old = Server()
    await Client(old, R1).get("/seed_session")
    await old.save(R1)
    new = Server(Undeclared, old)
    place = {"checkpoint_dir": "dir", "episode_ids": refs(R1)}
    reply = await new.control("restore", **place)
    assert code_of(reply) == (422, "invalid_checkpoint_state")
    assert new.hooks.notes == {}


async def test_a_state_for_a_stateless_server_is_refused() -> None:
    """What it held would be lost without a word."""
    old = Server()
    await Client(old, R1).get("/seed_session")
    await old.save(R1)
    new = Server(Judge, old)
    reply = await new.control("restore", checkpoint_dir="dir", episode_ids=refs(R1))
    assert code_of(reply) == (422, "invalid_checkpoint_state")
    assert "r1/s0" in reply.json["error"]["detail"]
    assert await new.counts() == {"inflight": 0, "sessions": 0}


async def test_a_session_missing_from_the_answer_is_dropped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    for episode in (R1, R2):
        await Client(server, episode).get("/seed_session")
    del server.hooks.notes["s0"]
    assert (await server.save(R1, R2))["episode_ids"] == ["r2"]
    assert (await server.counts())["sessions"] == 1
    assert "resources/desk: a session of r1 is gone" in caplog.text


async def test_a_session_that_nobody_asked_for_fails_the_commit() -> None:
    class Talkative(Notes):
        checkpoint_mode = "exported"

        async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
            return {"stranger": 1}

    server = Server(Talkative)
    await server.well("prepare")
    reply = await server.control("commit", checkpoint_dir="dir", episode_ids=[])
    assert code_of(reply) == (422, "invalid_checkpoint_state")


async def test_a_session_that_ended_and_could_not_be_freed_is_found_by_a_retire() -> None:
    """P73, P107: nobody else will come for it."""
    server = Server()
    client = Client(server, R1)
    await client.get("/seed_session")
    server.hooks.fails.add("retire")
    with pytest.raises(OSError, match="stuck"):
        await client.get("/verify")
    assert await server.counts() == {"inflight": 0, "sessions": 1}
    server.hooks.fails.clear()
    await server.well("retire", episode_ids=refs(R1))
    assert server.hooks.notes == {}


async def test_a_state_that_cannot_be_carried_is_named() -> None:
    server = Server()
    await Client(server, R1).get("/seed_session")
    server.hooks.notes["s0"] = [{1, 2}]
    await server.well("prepare")
    reply = await server.control("commit", checkpoint_dir="dir", episode_ids=refs(R1))
    assert code_of(reply) == (422, "invalid_checkpoint_state")
    assert "r1/s0" in reply.json["error"]["detail"]


async def test_only_sessions_in_scope_are_exported_and_restored_ones_left_out_are_freed() -> None:
    """P45, P48, P57."""
    old = Server()
    clients = [Client(old, episode) for episode in (R1, R2)]
    for client in clients:
        await client.get("/seed_session")
        await client.get("/note", text=client.episode.rollout_id)
    assert (await old.save(R1, R2))["episode_ids"] == ["r1", "r2"]
    new = Server(Notes, old)
    await new.restore(R1, R2)
    assert new.hooks.notes == {"s0": ["r1"], "s1": ["r2"]}
    committed = await new.save(R1.continuation, checkpoint_dir="second")
    assert committed["episode_ids"] == ["r1-a1"]
    await new.well("resume")
    assert new.hooks.notes == {"s0": ["r1"]}
    assert new.hooks.retired == ["s1"]
    fresh = Client(new, R2.continuation)
    await fresh.get("/seed_session")  # No fence: it may start over under the same attempt.


async def test_a_retire_frees_every_session_of_the_attempts_and_can_be_repeated() -> None:
    """P73, P107: what could not be freed is tried again."""
    server = Server()
    for episode in (R1, R1, R2):
        await Client(server, episode).get("/seed_session")
    server.hooks.fails.add("retire")
    reply = await server.control("retire", episode_ids=refs(R1))
    assert reply.status != 200
    server.hooks.fails.clear()
    await server.well("retire", episode_ids=refs(R1))
    assert server.hooks.notes == {"s2": []}
    assert await server.counts() == {"inflight": 0, "sessions": 1}


async def test_a_restore_that_one_session_fails_leaves_none() -> None:
    """P60, P54."""
    old = Server()
    for episode, text in ((R1, "good"), (R2, "damage")):
        client = Client(old, episode)
        await client.get("/seed_session")
        await client.get("/note", text=text)
    await old.save(R1, R2)
    new = Server(Notes, old)
    reply = await new.control("restore", checkpoint_dir="dir", episode_ids=refs(R1, R2))
    assert code_of(reply) == (500, "internal_error")
    assert new.hooks.notes == {}
    assert await new.counts() == {"inflight": 0, "sessions": 0}
    assert (await new.restore(R1))["restored"] == ["r1-a1"]
    assert new.hooks.notes == {"s0": ["good"]}


async def test_an_episode_that_starts_over_gives_up_the_session_that_was_restored_for_it() -> None:
    """Nobody could ever close it; one that was used stays."""
    old = Server()
    client = Client(old, R1)
    await client.get("/seed_session")
    await old.save(R1)
    over, used = Server(Notes, old), Server(Notes, old)
    for new in (over, used):
        new.hooks.names = iter(["s-new"])
        await new.restore(R1)
    await client.moved(used).get("/note", text="used")
    for new in (over, used):
        await Client(new, R1.continuation).get("/seed_session")
    assert over.hooks.notes == {"s-new": []}
    assert used.hooks.notes == {"s0": ["used"], "s-new": []}


async def test_a_live_session_keeps_a_restore_out_by_name() -> None:
    """P53."""
    server = Server()
    await Client(server, R1).get("/seed_session")
    reply = await server.control("restore", checkpoint_dir="dir", episode_ids=refs(R1))
    assert code_of(reply) == (409, "invalid_phase")
    assert "r1" in reply.json["error"]["detail"]


async def test_a_seed_that_does_not_name_its_session_fails() -> None:
    """It could never be exported."""

    class Nameless(Notes):
        checkpoint_mode = "exported"

        async def serve(self, request: Request) -> JSONResponse:
            return JSONResponse({})

    server = Server(Nameless)
    assert code_of(await Client(server, R1).post("/seed_session")) == (500, "internal_error")


@pytest.mark.parametrize(
    "members",
    [
        {"checkpoint_mode": "memory"},
        {"checkpoint_mode": "stateless", "checkpoint_verify": "maybe"},
        {"checkpoint_mode": "exported"},
    ],
)
def test_a_wrong_declaration_is_an_error_at_once(members: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        type("Wrong", (ResourcesHooks,), members)


def test_declarations_are_not_inherited() -> None:
    """A subclass that keeps more must not pass for its base."""

    class Base(ResourcesHooks):
        checkpoint_mode: ClassVar[Any] = "stateless"
        checkpoint_verify: ClassVar[Any] = "replay"

    class Sub(Base):
        pass

    assert Base().status(0) == {"mode": "stateless", "verify": "replay"}
    assert Sub().status(0) == {"mode": "undeclared", "verify": "wait"}
