"""Sessions and their episodes, found from either side."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ckptfmt.identity import EpisodeId
from participant.roles.sessions import SessionTable

NAMES = st.sampled_from(["a", "b", "c", "d"])
EPISODES = st.builds(EpisodeId, st.sampled_from(["r1", "r1x", "r2"]), st.integers(0, 2))


class Sessions(RuleBasedStateMachine):
    """The table against a plain dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SessionTable()
        self.model: dict[str, EpisodeId] = {}
        self.untouched: set[str] = set()

    @rule(name=NAMES, episode=EPISODES, is_restored=st.booleans())
    def bind(self, name: str, episode: EpisodeId, is_restored: bool) -> None:
        """A seed, or a restore."""
        self.table.bind(name, episode, is_restored=is_restored)
        self.model[name] = episode
        (self.untouched.add if is_restored else self.untouched.discard)(name)

    @rule(name=NAMES)
    def touch(self, name: str) -> None:
        """A call."""
        self.table.touch(name)
        self.untouched.discard(name)

    @rule(name=NAMES)
    def end(self, name: str) -> None:
        """A close, perhaps of nothing."""
        self.table.end(name)
        self.model.pop(name, None)
        self.untouched.discard(name)

    @rule(episode=EPISODES)
    def look(self, episode: EpisodeId) -> None:
        """From the side of an episode."""
        own = sorted(s for s, e in self.model.items() if e == episode)
        covered = {s for s, e in self.model.items() if episode.covers(e)}
        assert self.table.of(episode) == own
        assert sorted(self.table.up_to(episode)) == sorted(covered)
        assert self.table.untouched(episode) == [s for s in own if s in self.untouched]

    @invariant()
    def is_the_model(self) -> None:
        """From the side of a session."""
        assert (len(self.table), dict(self.table)) == (len(self.model), self.model)
        assert all(self.table.episode_of(s) == self.model.get(s) for s in ("a", "b", "c", "d"))

    def teardown(self) -> None:
        """Empty means empty: no table grows with the job's history."""
        for name in list(self.model):
            self.table.end(name)
        kept = vars(self.table).values()
        assert [len(table) for table in kept] == [0] * len(kept)


TestSessions = Sessions.TestCase
