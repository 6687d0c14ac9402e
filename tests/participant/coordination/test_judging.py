"""What the commits of one checkpoint have to be, judged without any I/O."""

from __future__ import annotations

import pytest

from ckptfmt.identity import EpisodeId
from participant.coordination import CommitReply, Commits
from participant.coordination.judging import (
    Stored,
    ownership_faults,
    reply_faults,
    twin_faults,
)
from participant.core.phases import Phase
from tests.support.fleets import ScriptedServers

R1, R2 = EpisodeId("r1"), EpisodeId("r2")


def reply(phase: Phase = Phase.COMMITTED, *keys: str) -> CommitReply:
    """A reply."""
    return CommitReply(phase, {}, keys)


def commits(**special: CommitReply | None) -> Commits:
    """Good replies of everybody, but for those of some servers; None for none."""
    good = dict.fromkeys(ScriptedServers().participants, reply(Phase.COMMITTED, "r1"))
    replies = {s: r for s, r in {**good, **special}.items() if r is not None}
    return Commits("ck", frozenset({R1, R2}), replies)


BAD_REPLIES = [
    ({"a": None}, "a", "has not replied"),
    ({"stranger": reply()}, "stranger", "was not discovered"),
    ({"t2": reply(Phase.PREPARED)}, "t2", "is prepared, not committed"),
    ({"m": reply(Phase.COMMITTED, "r1", "r3", "r1-a1")}, "m", "not in scope: r1-a1, r3"),
]


@pytest.mark.parametrize(("special", "culprit", "says"), BAD_REPLIES)
def test_a_bad_set_of_replies_names_the_server(
    special: dict[str, CommitReply | None], culprit: str, says: str
) -> None:
    """P110."""
    ((server, failure),) = reply_faults(ScriptedServers().fleet, commits(**special)).items()
    assert server == culprit
    assert says in failure.text
    assert not failure.passes


def test_good_replies_have_no_fault() -> None:
    assert reply_faults(ScriptedServers().fleet, commits()) == {}
    assert reply_faults(ScriptedServers().fleet, commits(a=reply(), m=reply())) == {}


BOTH = ("r1", "r2")
ENV = OWNER = Stored(BOTH, BOTH)
TOOLS = Stored(BOTH)

OWNED = [
    {"e": ENV, "a": Stored(("r1",)), "t": TOOLS, "m": Stored(("r2",))},
    {"a": OWNER, "t": TOOLS},
    {"a": OWNER, "b": Stored(("r1",)), "t": TOOLS},
    {"e": Stored(("r1",), ("r1",)), "a": Stored(("r1", "r2"), ("r2",)), "t": TOOLS},
    {"e": Stored(("r1",), ("r1",)), "f": Stored(("r2",), ("r2",)), "t": TOOLS},
    {"e": ENV, "t": Stored(())},
    {},
]


@pytest.mark.parametrize("stored", OWNED)
def test_every_record_with_one_owner_is_fine(stored: dict[str, Stored]) -> None:
    assert ownership_faults(stored, allow_unowned=False) == {}


CONTESTED = [
    ({"e": ENV, "f": Stored(("r2",), ("r2",))}, "f", "exported r2, and so did e"),
    ({"e": ENV, "a": OWNER}, "a", "exported r1, r2, and so did e"),
]


@pytest.mark.parametrize("allow_unowned", [True, False])
@pytest.mark.parametrize(("stored", "culprit", "says"), CONTESTED)
def test_two_owners_of_one_episode_are_refused_in_any_case(
    stored: dict[str, Stored], culprit: str, says: str, allow_unowned: bool
) -> None:
    ((server, failure),) = ownership_faults(stored, allow_unowned=allow_unowned).items()
    assert server == culprit
    assert says in failure.text


UNOWNED = [
    {"e": Stored(("r1",), ("r1",)), "t": TOOLS},
    {"a": Stored(("r1",)), "t": Stored(())},
    {"a": Stored(BOTH, ("r1",)), "t": Stored(("r1",))},
    {"e": ENV, "m": Stored(("r2", "r3"))},
]


@pytest.mark.parametrize("stored", UNOWNED)
def test_records_that_nobody_would_go_on_with_are_refused_by_default(
    stored: dict[str, Stored],
) -> None:
    ((_, failure),) = ownership_faults(stored, allow_unowned=False).items()
    assert "no environment exported" in failure.text
    assert ownership_faults(stored, allow_unowned=True) == {}


def test_many_unowned_episodes_are_counted_and_three_named() -> None:
    stored = {"t": Stored(tuple(f"r{n}" for n in range(1000)))}
    ((_, failure),) = ownership_faults(stored, allow_unowned=False).items()
    assert "r0, r1, r2 and 997 more" in failure.text


def test_a_staging_key_belongs_to_one_call_of_the_whole_checkpoint() -> None:
    assert twin_faults({"m": ["k1", "k2"], "n": ["k3"]}) == {}
    (within,) = twin_faults({"m": ["k1", "k1"], "n": ["k3"]}).items()
    assert within[0] == "m"
    (across,) = twin_faults({"m": ["k1"], "n": ["k3", "k1"]}).items()
    assert across[0] == "n"
    assert "k1" in across[1].text
