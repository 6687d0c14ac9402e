"""One control call: how long it is awaited, and what becomes of each kind of answer."""

from __future__ import annotations

import itertools

import pytest

from participant.coordination import Control, prepare, resume
from participant.coordination.calls import (
    _PASSING,
    REPLY_GRACE_S,
    Failure,
    Form,
    check_all,
    read,
    shown,
)
from participant.core.messages import PrepareReply
from participant.errors import (
    CoordinationError,
    CoordinationFatalError,
    CoordinationRetryError,
)
from participant.http.replies import STATUS_OF
from participant.testing.clock import FakeClock
from participant.transport import ControlReply
from tests.support.fleets import ScriptedServers, in_time

pytestmark = pytest.mark.anyio


async def test_each_reply_is_awaited_five_seconds_past_the_deadline() -> None:
    """P114."""
    servers = ScriptedServers()
    await prepare(servers.control, servers.fleet, "ck", 30.0)
    assert set(servers.timeouts_s) == {30.0 + REPLY_GRACE_S}
    assert {body["deadline_ts"] for body in servers.bodies} == {servers.clock.wall() + 30}


async def test_the_stages_of_an_operation_share_one_deadline() -> None:
    """What one stage takes, the next ones lack; past the deadline five seconds are left."""
    servers = ScriptedServers()
    servers.script["resume", "a"] = "hangs"
    with pytest.raises(CoordinationRetryError):
        await in_time(servers.clock, resume(servers.control, servers.fleet, "ck", 30.0))
    assert servers.take_asked()[-1] == ("resume", "e")
    assert servers.timeouts_s[:2] == [35.0, 35.0]
    assert servers.timeouts_s[-2:] == [5.0, 5.0]


async def test_setting_the_wall_clock_moves_no_deadline() -> None:
    """P28: the budget that a server is told, deadline minus now, is what is left."""

    class SetBack(FakeClock):
        def wall(self) -> float:
            self.step_wall(-3600)
            return super().wall()

    servers = ScriptedServers()
    clock = SetBack()
    await prepare(Control(servers, clock), servers.fleet, "ck", 30.0)
    assert set(servers.timeouts_s) == {35.0}
    told = [body["deadline_ts"] for body in servers.bodies]
    assert [later - first for first, later in itertools.pairwise(told)] == [-3600.0] * 4


def test_one_failure_that_does_not_pass_makes_all_of_it_fatal() -> None:
    """P115."""
    passing, lasting = Failure("lost", passes=True), Failure("malformed")
    check_all("commit", {})
    with pytest.raises(CoordinationRetryError) as caught:
        check_all("commit", {"s1": passing, "s2": passing})
    assert (caught.value.operation, caught.value.failures) == (
        "commit",
        {"s1": "lost", "s2": "lost"},
    )
    with pytest.raises(CoordinationFatalError, match="commit failed: s1: lost; s2: malformed"):
        check_all("commit", {"s2": lasting, "s1": passing})


def test_text_of_servers_is_cut_and_holds_nothing_that_moves_a_cursor() -> None:
    assert shown("fine, näturlich") == "fine, näturlich"
    assert shown("\x1b[2J") == r"'\x1b[2J'"
    assert shown("a\u202eb") == r"'a\u202eb'"
    assert len(shown("x" * 100_000)) <= 1001


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, CoordinationFatalError), (307, CoordinationFatalError), (502, CoordinationRetryError)],
)
async def test_a_refusal_that_is_no_error_object_is_not_of_a_participant(
    status: int, kind: type[CoordinationError]
) -> None:
    servers = ScriptedServers()
    servers.script["prepare", "e"] = f"answers {status}"
    with pytest.raises(kind, match=f"e: it answers {status}, and not as a participant does"):
        await prepare(servers.control, servers.fleet, "ck", 30.0)


def test_an_error_of_any_form_is_only_a_failure() -> None:
    odd = ControlReply(409, {"error": {"code": ["x"], "detail": {"deep": "\x1b[2J"}}})
    answer = read(odd, Form(PrepareReply))
    assert isinstance(answer, Failure)
    assert not answer.passes
    assert "\x1b" not in answer.text


def test_what_is_refused_for_now_are_the_statuses_that_say_so() -> None:
    """P115: docs/coordination.md says it by status."""
    statuses = (409, 500, 503)
    assert {code for code, status in STATUS_OF.items() if status in statuses} == _PASSING
