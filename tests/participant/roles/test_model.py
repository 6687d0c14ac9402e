"""The role of a policy model server, over its routes and a ledger on disk."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import participant
from ckptfmt.errors import ConflictError, RetiredError
from ckptfmt.identity import EpisodeId
from ckptfmt.ledger.parents import Standing
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.ledger_pin import LedgerPin
from ckptfmt.payload import JsonPayload
from ckptfmt.schema import ModelRecord
from ckptfmt.store.os_calls import OsCalls
from participant.roles.model import MODEL_PATHS, ModelHooks
from participant.runtime.shell import Components
from participant.testing.asgi import AsgiCall
from participant.testing.clock import settle
from tests.support.ledgers import call_id, failure, row
from tests.support.participants import until
from tests.support.role_servers import SETTINGS, RoleServer, refs

pytestmark = pytest.mark.anyio
R1, R2 = EpisodeId("r1"), EpisodeId("r2")
CHAT, RESPONSES, MESSAGES = MODEL_PATHS


class Model(RoleServer):
    """A model server: each call records a row, and replies once ``go`` is set."""

    def __init__(self, root: Path, before: RoleServer | None = None) -> None:
        self.ledger = StagingLedger(root)
        self.hooks = ModelHooks(self.ledger)
        self.go, self.more = asyncio.Event(), asyncio.Event()
        self.go.set()
        self.more.set()
        self.ended: list[int] = []
        super().__init__(self.make, before.storage if before else None)

    def make(self, components: Components) -> Starlette:
        """The app."""
        app = Starlette(routes=[Route(p, self.serve, methods=["POST"]) for p in MODEL_PATHS])
        participant.install(
            app, self.hooks, SETTINGS, kind="model", instance="policy", components=components
        )
        return app

    async def serve(self, request: Request) -> Response:
        """Every route; the body says what to record and how to reply."""
        body = await request.json()
        number = body["call"]
        try:
            await self.go.wait()
            if body.get("fails"):
                await self.hooks.record(failure(number))
                raise RuntimeError("the backend is gone")
            recorded = await self.hooks.record(row(number))
            if body.get("stream"):
                return StreamingResponse(self.chunks())
            return JSONResponse({"call": number, "recorded": recorded})
        finally:
            self.ended.append(number)

    async def chunks(self) -> AsyncIterator[bytes]:
        """A first token, and the rest once ``more`` is set."""
        yield b"first "
        await self.more.wait()
        yield b"last"

    def ask(self, episode: EpisodeId | None, number: int, **body: Any) -> AsgiCall:
        """A call to the chat route."""
        return self.begin(CHAT, episode, {"call": number, **body})

    async def counts(self) -> dict[str, int]:
        """The counts of the report."""
        counts: dict[str, int] = (await self.well("status"))["report"]["counts"]
        return counts

    def calls(self, key: str) -> list[str]:
        """The calls in a ledger."""
        return [r["model_call_id"] for r in self.ledger.export_rows(key)]

    async def until_recorded(self, key: str, count: int) -> None:
        """Wait until a ledger has so many rows."""
        await until(lambda: len(self.calls(key)) == count)
        await settle()


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    """A server with an empty capture directory."""
    server = Model(tmp_path / "capture")
    yield server
    server.ledger.close()


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, "/policy/v1/messages"])
async def test_a_call_in_flight_is_not_waited_for_and_its_reply_is_held(
    path: str, model: Model
) -> None:
    """P92: not even the first byte leaves before resume."""
    if path not in MODEL_PATHS:
        model.app.router.routes.append(Route(path, model.serve, methods=["POST"]))
    model.go.clear()
    call = model.begin(path, R1, {"call": 1})
    await settle()
    prepared = await model.well("prepare")
    assert prepared["phase"] == "prepared"
    assert prepared["report"]["counts"] == {"inflight": 1, "held": 0, "untagged": 0}
    model.go.set()
    await model.until_recorded("r1", 1)
    assert not call.has_started
    assert await model.counts() == {"inflight": 0, "held": 1, "untagged": 0}
    await model.well("resume")
    assert (await call.reply()).json == {"call": 1, "recorded": True}
    assert await model.counts() == {"inflight": 0, "held": 0, "untagged": 0}


async def test_a_response_that_streams_blocks_until_it_ends(model: Model) -> None:
    """P92."""
    model.more.clear()
    call = model.ask(R1, 1, stream=True)
    await until(lambda: call.has_started)
    prepare = asyncio.ensure_future(model.well("prepare"))
    await settle()
    assert not prepare.done()
    assert (await model.well("status"))["report"]["blockers"] == ["r1"]
    model.more.set()
    assert (await prepare)["phase"] == "prepared"
    assert (await call.reply()).body == b"first last"
    committed = await model.well("commit", checkpoint_dir="dir", episode_ids=refs(R1))
    assert committed["episode_ids"] == ["r1"]


async def test_a_call_that_arrives_while_closed_waits_and_is_no_execution(model: Model) -> None:
    await model.well("prepare")
    call = model.ask(R1, 1)
    await settle()
    assert await model.counts() == {"inflight": 0, "held": 0, "untagged": 0}
    assert model.ended == []
    await model.well("resume")
    assert (await call.reply()).status == 200
    assert model.ended == [1]


async def test_calls_of_no_episode_pass_are_not_held_and_not_recorded(model: Model) -> None:
    """P6, P91: a judge on the policy server must not deadlock a prepare."""
    model.go.clear()
    before = model.ask(None, 1)
    await settle()
    prepared = await model.well("prepare")
    assert prepared["phase"] == "prepared"
    assert prepared["report"]["counts"]["untagged"] == 1
    model.go.set()
    assert (await before.reply()).json == {"call": 1, "recorded": False}
    assert (await model.ask(None, 2).reply()).status == 200
    await model.well("resume")
    await model.well("retire", checkpoint_id="x", episode_ids=refs(R1))
    assert (await model.ask(None, 3).reply()).status == 200


async def test_undelivered_calls_are_left_out_and_asked_again_after_a_restore(
    model: Model, tmp_path: Path
) -> None:
    """P93: what was delivered is in the ledger of the next attempt, the rest is not."""
    await model.ask(R1, 0).reply()
    model.go.clear()
    held, running = model.ask(R1, 1), model.ask(R2, 2)
    await settle()
    await model.well("prepare")
    model.go.set()
    await model.until_recorded("r1", 2)
    await model.until_recorded("r2", 1)
    committed = await model.well("commit", checkpoint_dir="dir", episode_ids=refs(R1, R2))
    assert committed["episode_ids"] == ["r1"]
    await model.well("resume")
    for call in (held, running):
        await call.reply()
    model.ledger.close()

    new = Model(tmp_path / "capture", model)
    restored = await new.restore(R1, R2)
    assert restored["restored"] == ["r1-a1"]
    assert new.calls("r1-a1") == [call_id(0)]
    assert [r["capture_key"] for r in new.ledger.export_rows("r1-a1")] == ["r1"]
    assert new.calls("r2-a1") == []
    for key in ("r1", "r2"):
        with pytest.raises(RetiredError):
            new.calls(key)
    assert (await new.ask(R1.continuation, 1).reply()).json["recorded"] is True
    assert new.calls("r1-a1") == [call_id(0), call_id(1)]
    assert (await new.ask(R1, 3).reply()).status == 409
    new.ledger.close()


async def test_a_row_written_while_ledgers_are_read_is_known_as_undelivered(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P93: calls are asked about after the reading, not before."""
    await model.ask(R1, 0).reply()
    model.go.clear()
    call = model.ask(R1, 1)
    await settle()
    await model.well("prepare")
    reading, read = threading.Event(), threading.Event()
    export_pinned = model.ledger.export_pinned

    def slow(key: str) -> tuple[list[dict[str, Any]], LedgerPin | None]:
        reading.set()
        assert read.wait(30)
        return export_pinned(key)

    with monkeypatch.context() as patch:
        patch.setattr(model.ledger, "export_pinned", slow)
        commit = asyncio.ensure_future(
            model.well("commit", checkpoint_dir="dir", episode_ids=refs(R1))
        )
        await until(reading.is_set)
        model.go.set()
        await until(lambda: len(model.calls("r1")) == 2)
        read.set()
        await commit
    (stored,) = model.storage.stored.values()  # type: ignore[attr-defined]
    (record,) = stored.records
    assert [r["model_call_id"] for r in record.rows.value()] == [call_id(0)]
    await model.well("resume")
    await call.reply()


async def test_a_failure_is_an_answer_that_is_held_too(model: Model) -> None:
    """P92, P30: and its row is of an undelivered call."""
    model.go.clear()
    call = model.ask(R1, 1, fails=True)
    await settle()
    await model.well("prepare")
    model.go.set()
    await model.until_recorded("r1", 1)
    assert await model.counts() == {"inflight": 0, "held": 1, "untagged": 0}
    committed = await model.well("commit", checkpoint_dir="dir", episode_ids=refs(R1))
    assert committed["episode_ids"] == []
    assert not call.has_started
    await model.well("resume")
    with pytest.raises(RuntimeError):
        await call.reply()


async def test_a_null_scope_is_refused(model: Model) -> None:
    """P48: before anything begins, so that the same id can be committed with a list at once."""
    await model.well("prepare")
    reply = await model.control("commit", checkpoint_dir="dir", episode_ids=None)
    assert (reply.status, reply.json["error"]["code"]) == (422, "invalid_request")
    committed = await model.well("commit", checkpoint_dir="dir", episode_ids=[])
    assert committed["phase"] == "committed"


async def test_a_second_checkpoint_carries_restored_ledgers_on_and_deletes_what_it_leaves_out(
    model: Model, tmp_path: Path
) -> None:
    """P44, P45: deleted without a fence, so that the attempt may be started over."""
    await model.ask(R1, 0).reply()
    await model.ask(R2, 1).reply()
    await model.save(R1, R2)
    new = Model(tmp_path / "other node", model)
    await new.restore(R1, R2)
    committed = await new.save(R1.continuation, checkpoint_dir="second")
    assert committed["episode_ids"] == ["r1-a1"]
    await new.well("resume")
    assert new.calls("r2-a1") == []
    assert (await new.ask(R2.continuation, 5).reply()).json["recorded"] is True
    third = Model(tmp_path / "third node", model)
    restored = await third.restore(R1.continuation, checkpoint_dir="second")
    assert restored["restored"] == ["r1-a2"]
    assert [r["capture_key"] for r in third.ledger.export_rows("r1-a2")] == ["r1"]
    new.ledger.close()
    third.ledger.close()


async def test_a_retire_ends_what_runs_and_then_retires_every_attempt(model: Model) -> None:
    """P64, P73."""
    for attempt in (0, 1, 2, 3):
        model.ledger.record(EpisodeId("r1", attempt).capture_key, row(attempt))
    model.ledger.record("r1x", row(9))
    model.go.clear()
    running = model.ask(EpisodeId("r1", 2), 10)
    await settle()
    await model.well("retire", checkpoint_id="x", episode_ids=refs(EpisodeId("r1", 2)))
    assert model.ended == [10]
    reply = await running.reply()
    assert (reply.status, reply.json["error"]["code"]) == (409, "stale_attempt")
    for key in ("r1", "r1-a1", "r1-a2"):
        with pytest.raises(RetiredError):
            model.calls(key)
    assert (model.calls("r1-a3"), model.calls("r1x")) == ([call_id(3)], [call_id(9)])


async def test_a_call_that_waits_in_restored_is_refused_when_its_attempt_is_retired(
    model: Model, tmp_path: Path
) -> None:
    """P31."""
    await model.ask(R1, 0).reply()
    await model.save(R1)
    new = Model(tmp_path / "other node", model)
    place = {"checkpoint_dir": "dir", "episode_ids": refs(R1)}
    await new.well("restore", checkpoint_id="back", **place)
    call = new.ask(R1.continuation, 1)
    await settle()
    retired = refs(R1.continuation)
    await new.well("retire", checkpoint_id="back", episode_ids=retired)
    reply = await call.reply()
    assert (reply.status, reply.json["error"]["code"]) == (409, "stale_attempt")
    assert new.ended == []
    new.ledger.close()


async def test_a_retire_waits_for_a_row_that_is_being_written(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that writes cannot be cancelled; the ledger is retired after it."""
    writing, written = threading.Event(), threading.Event()
    record = model.ledger.record

    def slow(key: str, line: Any) -> bool:
        writing.set()
        assert written.wait(30)
        return record(key, line)

    monkeypatch.setattr(model.ledger, "record", slow)
    call = model.ask(R1, 1)
    await until(writing.is_set)
    retire = asyncio.ensure_future(model.well("retire", episode_ids=refs(R1)))
    await settle()
    assert not retire.done()
    written.set()
    await retire
    assert (await call.reply()).status == 409
    with pytest.raises(RetiredError):
        model.calls("r1")


class StuckSync(OsCalls):
    """Between the write of a row and its sync it waits, and then may fail."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.is_armed = False
        self.reached, self.let_go = threading.Event(), threading.Event()

    def fsync(self, fd: int) -> None:
        """The first one once it is armed."""
        if self.is_armed:
            self.is_armed = False
            self.reached.set()
            assert self.let_go.wait(30)
            if self.fails:
                raise OSError(errno.EIO, "the disk is gone")
        super().fsync(fd)


@pytest.mark.parametrize(("fails", "reason"), [(False, None), (True, "worker_capture_failed")])
async def test_a_call_that_is_cancelled_in_the_middle_of_its_row_has_exactly_one(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool, reason: str | None
) -> None:
    """L20: a success, or the failure that its handler records then; and its caller is told."""
    calls = StuckSync(fails=fails)
    ledger = StagingLedger(tmp_path / "stuck", calls=calls)
    monkeypatch.setattr(model.hooks, "_ledger", ledger)
    refused: list[str] = []

    async def serve(request: Request) -> JSONResponse:
        try:
            await model.hooks.record(row(1))
        except asyncio.CancelledError:
            try:
                await model.hooks.record(failure(1))
            except ConflictError as error:
                refused.append(error.code)
            raise
        raise AssertionError("it was cancelled")

    seen: list[dict[str, Any]] = []
    retire = ledger.retire

    def last_look(keys: Any) -> Any:
        seen.extend(ledger.export_rows("r1"))
        return retire(keys)

    monkeypatch.setattr(ledger, "retire", last_look)
    model.app.router.routes.insert(0, Route(RESPONSES, serve, methods=["POST"]))
    calls.is_armed = True
    call = model.begin(RESPONSES, R1)
    await until(calls.reached.is_set)
    retired = asyncio.ensure_future(model.well("retire", episode_ids=refs(R1)))
    await settle()
    assert not call.has_started
    calls.let_go.set()
    await retired
    reply = await call.reply()
    assert (reply.status, reply.json["error"]["code"]) == (409, "stale_attempt")
    (line,) = seen
    assert (line["model_call_id"], line.get("failure_reason")) == (call_id(1), reason)
    assert refused == ([] if fails else ["conflict"])
    ledger.close()


async def test_a_retire_of_a_high_attempt_stays_one_batch(model: Model) -> None:
    far = EpisodeId("r1", 10_000)
    await model.well("retire", episode_ids=refs(far))
    with pytest.raises(RetiredError):
        model.calls(far.capture_key)


async def test_status_answers_while_ledgers_are_read_and_imported(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P98: files are read and written off the event loop."""
    await model.ask(R1, 0).reply()
    begun, done = threading.Event(), threading.Event()

    def hanging(name: str, server: Model) -> None:
        real = getattr(server.ledger, name)

        def wait(*arguments: Any) -> Any:
            begun.set()
            assert done.wait(30)
            return real(*arguments)

        monkeypatch.setattr(server.ledger, name, wait)

    async def meanwhile(server: Model, command: str, **members: Any) -> None:
        begun.clear()
        done.clear()
        work = asyncio.ensure_future(server.well(command, **members))
        await until(begun.is_set)
        for _ in range(3):
            await server.well("status")
        assert not work.done()
        done.set()
        await work

    place = {"checkpoint_dir": "dir", "episode_ids": refs(R1)}
    hanging("export_pinned", model)
    await model.well("prepare")
    await meanwhile(model, "commit", **place)
    new = Model(tmp_path / "other node", model)
    hanging("import_rows_many", new)
    await meanwhile(new, "restore", **place)
    await new.well("resume")
    hanging("retire", new)
    await meanwhile(new, "retire", checkpoint_id="x", episode_ids=refs(R2))
    new.ledger.close()


async def test_rows_that_cannot_stand_in_a_ledger_install_nothing(model: Model) -> None:
    """P55, P60."""
    orphan = row(1, row(0)).members()
    records = [
        ModelRecord(
            episode_id=episode,
            rows=JsonPayload.from_value(rows),
            generation_cuts=JsonPayload.from_value([]),
        )
        for episode, rows in ((R1, [row(0).members()]), (R2, [orphan]))
    ]
    attempts = frozenset({R1.continuation, R2.continuation})
    with pytest.raises(Exception, match="r2-a1"):
        await model.hooks.install(records, attempts)
    assert (model.calls("r1-a1"), model.calls("r2-a1"), model.calls("r1")) == ([], [], [])


async def test_a_failed_import_is_undone(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P60: the ledgers of the next attempts go again, without a fence."""

    def full(keys: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(model.ledger, "retire", full)
    with pytest.raises(OSError, match="space"):
        await model.hooks.install([], frozenset({R1.continuation}))
    assert list((tmp_path / "capture").glob("r1*")) == []


async def test_a_used_capture_directory_keeps_no_restore_out(model: Model, tmp_path: Path) -> None:
    """P63: leftovers of the attempts that are installed go, later ones too."""
    await model.ask(R1, 0).reply()
    await model.save(R1)
    model.ledger.record("r1-a1", row(7))
    model.ledger.record("r1-a2", row(8))
    model.ledger.retire(["r1-a1"])
    model.ledger.close()
    new = Model(tmp_path / "capture", model)
    await new.restore(R1)
    assert new.calls("r1-a1") == [call_id(0)]
    assert new.calls("r1-a2") == []
    new.ledger.close()


async def test_admission_to_the_ledger_names_the_call_too(model: Model) -> None:
    """A parent that is not found is recorded as a failure, of an undelivered call."""

    async def admit(request: Request) -> JSONResponse:
        items = [{"role": "assistant", "content": "never said"}]
        parent = await model.hooks.admit(call_id(5), items)
        await model.go.wait()
        return JSONResponse({"standing": parent.standing if parent else None})

    model.app.router.routes.insert(0, Route(RESPONSES, admit, methods=["POST"]))
    await model.ask(R1, 0).reply()
    model.go.clear()
    call = model.begin(RESPONSES, R1)
    await model.until_recorded("r1", 2)
    untagged = model.begin(RESPONSES, None)
    await model.save(R1)
    (stored,) = model.storage.stored.values()  # type: ignore[attr-defined]
    (record,) = stored.records
    assert [r["model_call_id"] for r in record.rows.value()] == [call_id(0)]
    model.go.set()
    assert (await untagged.reply()).json == {"standing": None}
    await model.well("resume")
    assert (await call.reply()).json == {"standing": Standing.UNRESOLVED}


async def test_an_id_that_an_earlier_run_has_used_is_refused_with_that_reason(
    model: Model,
) -> None:
    """P3: told from one that was retired just now."""

    async def admit(request: Request) -> JSONResponse:
        await model.hooks.admit(call_id(5), [])
        return JSONResponse({})

    model.app.router.routes.insert(0, Route(RESPONSES, admit, methods=["POST"]))
    model.ledger.retire(["r1"])
    await model.well("retire", episode_ids=refs(R2))
    for episode, says in (
        (R1, "by an earlier run"),
        (R2, "was retired or given up here 0.0 s ago"),
    ):
        reply = await model.begin(RESPONSES, episode).reply()
        assert (reply.status, reply.json["error"]["code"]) == (409, "stale_attempt")
        assert says in reply.json["error"]["detail"]
    model.ledger.delete(["r1"])
    assert (await model.begin(RESPONSES, R1).reply()).status == 200


async def test_nothing_is_kept_of_calls_that_have_ended(model: Model) -> None:
    for number in range(3):
        await model.ask(R1, number).reply()
    with pytest.raises(RuntimeError):
        await model.ask(R1, 3, fails=True).reply()
    assert model.hooks._undelivered == {}
    assert (await model.well("status"))["restored_generation_cuts"] == 0
