"""What the operations send and return; their orders are told in ``scenarios/coordination``."""

from __future__ import annotations

import pytest

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.coordination import commit, prepare, renew, retire
from participant.core.phases import Phase
from tests.support.fleets import ScriptedServers

pytestmark = pytest.mark.anyio


async def test_a_prepare_tells_who_blocks() -> None:
    servers = ScriptedServers()
    servers.script["prepare", "a"] = "blocked r1,r2"
    prepared = await prepare(servers.control, servers.fleet, "ck", 30.0)
    assert not prepared.prepared
    assert prepared.blockers["a"].blockers == ("r1", "r2")
    assert set(prepared.replies) == {"e", "m", "a"}


async def test_prepared_without_being_ready_is_not_prepared() -> None:
    """A server that contradicts itself does not let a commit go ahead."""
    servers = ScriptedServers()
    servers.script["prepare", "a"] = "blocked r1"
    good = servers.good

    def contradicts(server: str, command: str, members: object) -> dict[str, object]:
        reply = good(server, command, {})
        return {**reply, "report": {**reply["report"], "ready": server != "m"}}

    servers.script.clear()
    servers.good = contradicts  # type: ignore[method-assign, assignment]
    prepared = await prepare(servers.control, servers.fleet, "ck", 30.0)
    assert not prepared.prepared
    assert set(prepared.blockers) == {"m"}


async def test_a_commit_sends_the_scope_sorted_and_once_and_keeps_the_replies() -> None:
    servers = ScriptedServers()
    scope = [EpisodeId("r2", 1), EpisodeId("r1"), EpisodeId("r2", 1)]
    commits = await commit(servers.control, servers.fleet, "ck", "run/ck", scope, 30.0)
    (sent,) = {str(body["episode_ids"]) for body in servers.bodies if body}
    expected = [{"rollout_id": "r1", "attempt": 0}, {"rollout_id": "r2", "attempt": 1}]
    assert sent == str(expected)
    assert {body["checkpoint_dir"] for body in servers.bodies if body} == {"run/ck"}
    assert commits.episodes == frozenset(scope)
    assert {reply.phase for reply in commits.replies.values()} == {Phase.COMMITTED}


async def test_an_empty_scope_is_sent_as_one() -> None:
    """``[]`` says that nothing continues; null would say that everything does."""
    servers = ScriptedServers()
    await commit(servers.control, servers.fleet, "ck", "run/ck", [], 30.0)
    assert [body["episode_ids"] for body in servers.bodies if body] == [[]] * 5


async def test_renew_tells_the_end_of_the_first_lease() -> None:
    servers = ScriptedServers()
    ends_at = await renew(servers.control, servers.fleet, "ck", 10.0)
    assert ends_at == servers.clock.wall() + 610


async def test_a_job_without_some_kinds_is_prepared_all_the_same() -> None:
    servers = ScriptedServers([ParticipantId("agent", "a"), ParticipantId("model", "m")])
    assert (await prepare(servers.control, servers.fleet, "ck", 30.0)).prepared
    assert servers.take_asked() == [("prepare", "m"), ("prepare", "a")]


async def test_a_retire_of_nothing_calls_nobody() -> None:
    """P109."""
    servers = ScriptedServers()
    await retire(servers.control, servers.fleet, "any", [], 30.0)
    assert servers.take_asked() == []
