"""The role of a resources server: sessions of tools and verifiers, each of one episode.

A 2xx reply to ``/seed_session`` binds its session to the episode; a 2xx reply to
``/verify`` or ``/close_session`` ends that, and what the server still holds of the session
is retired.  Both happen while the call still counts as running, so that no checkpoint
slips in between.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from ckptfmt.gc_pause import bulk_decode
from ckptfmt.identity import EpisodeId, ParticipantId, record_key
from ckptfmt.schema import ResourcesRecord
from participant.core.errors import (
    InternalError,
    InvalidCheckpointStateError,
    RolloutIdRequiredError,
    StaleAttemptError,
)
from participant.hooks import DefaultHooks, Export, GateCounts, GatedRoute, Scope, ServedCall
from participant.roles.payloads import payload_of
from participant.roles.sessions import SessionTable
from participant.roles.verify_mode import VERIFY_HEADER

__all__ = ["CLOSE", "SEED", "VERIFY", "ResourcesHooks"]

SEED: Final = "/seed_session"
VERIFY: Final = "/verify"
CLOSE: Final = "/close_session"

# An empty suffix is that of every path.  What belongs to no episode passes: metrics, say.
_TOOLS: Final = GatedRoute("", requires_rollout=False)

_logger = logging.getLogger(__name__)


class ResourcesHooks(DefaultHooks):
    """Hooks of a resources server: derive, declare, and write the three hooks if need be.

    ``checkpoint_mode`` says what a checkpoint holds of a session:

    * ``"stateless"``: only that it exists, so that calls and the clean-up find it;
    * ``"exported"``: its state, by :meth:`export_session_states` and its two companions;
    * None, the default: nothing was declared, and every commit is refused.

    ``checkpoint_verify`` is ``"replay"`` where ``/verify`` changes nothing of its session,
    so that it may run twice and no checkpoint has to wait for it.

    Both are read from the class of the hooks itself and are not inherited: a subclass
    that keeps more than its base does must say so, and fails closed until it does.

    Every call of an episode goes through admission, whatever its path; so no tool can be
    forgotten.

    Raises:
        TypeError: a declaration has another value, or a hook that it needs is missing.
    """

    checkpoint_mode: ClassVar[Literal["stateless", "exported"] | None] = None
    checkpoint_verify: ClassVar[Literal["replay", "wait"]] = "wait"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.checkpoint_mode not in (None, "stateless", "exported"):
            raise TypeError(f"{cls.__name__}: checkpoint_mode is 'stateless' or 'exported'")
        if cls.checkpoint_verify not in ("replay", "wait"):
            raise TypeError(f"{cls.__name__}: checkpoint_verify is 'replay' or 'wait'")
        missing = [name for name in _HOOKS if _is_missing(cls, name)]
        if missing and cls.checkpoint_mode == "exported":
            raise TypeError(f"{cls.__name__} exports sessions, and has no {', '.join(missing)}")

    # Two underscores: a subclass is a server, and may have its own `verify` or `_sessions`.

    def __init__(self) -> None:
        self.__sessions = SessionTable()
        self.__entered: dict[ServedCall, str] = {}
        self.__bound: dict[ServedCall, str] = {}
        self.__ended: dict[ServedCall, str] = {}
        self.__name = type(self).__name__
        self.__mode = vars(type(self)).get("checkpoint_mode")
        self.__verify = vars(type(self)).get("checkpoint_verify", "wait")
        # Also where nothing was declared: then the state is not saved, but it is freed.
        self.__can_retire = not _is_missing(type(self), "retire_session_state")
        self.gated_routes = (
            GatedRoute(SEED),
            GatedRoute(VERIFY, replays=self.__verify == "replay"),
            GatedRoute(CLOSE, is_cleanup=True),
            _TOOLS,
        )

    async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
        """The state of each of these sessions: any value that ``ckptfmt`` carries exactly.

        A session that is not in the answer is gone: it is dropped with a warning.  The
        values must not be changed before resume; no gated call runs until then.
        """
        raise NotImplementedError

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """Hold all these sessions in these states, or raise and hold none of them."""
        raise NotImplementedError

    async def retire_session_state(self, session_id: str) -> None:
        """Hold nothing of a session: it has ended, or its seed failed, or its episode is over.

        It may be unknown, half built, or retired before.
        """
        raise NotImplementedError

    def session_of(self, call: ServedCall) -> str | None:
        """The session of a call: by default ``scope["session"]["session_id"]``.

        A server that names its sessions otherwise overrides this.
        """
        session: Mapping[str, Any] = call.scope.get("session") or {}
        session_id = session.get("session_id")
        return session_id if isinstance(session_id, str) else None

    def joined(self, participant: ParticipantId) -> None:
        """As :meth:`ParticipantHooks.joined`."""
        self.__name = str(participant)

    async def call_begins(self, call: ServedCall) -> None:
        """Refuse a call whose session is not here, before the server makes an empty one.

        Raises:
            StaleAttemptError: it ended, was not restored, or is another episode's.
            RolloutIdRequiredError: the call names a session and no episode.
        """
        session_id, episode, suffix = self.session_of(call), call.episode, call.route.suffix
        bound = None if session_id is None else self.__sessions.episode_of(session_id)
        if episode is None:
            if bound is None:
                return
            raise RolloutIdRequiredError("a session is called under /ng-rollout/<capture_key>/")
        if bound not in (None, episode):
            raise StaleAttemptError(f"the session is not one of {episode.capture_key}")
        if bound is None and self.__mode == "exported" and suffix not in (SEED, CLOSE):
            raise StaleAttemptError(
                f"{self.__name} has no such session of {episode.capture_key}: it has ended, or "
                "was neither seeded nor restored here"
            )
        if session_id is not None and suffix != SEED:
            self.__sessions.touch(session_id)
        if session_id is not None and bound is not None:
            self.__entered[call] = session_id

    async def call_replies(self, call: ServedCall, status: int) -> Mapping[str, str]:
        """Bind or end the session of the call, if it succeeded."""
        suffix, session_id = call.route.suffix, self.session_of(call)
        if not 200 <= status < 300 or suffix not in (SEED, VERIFY, CLOSE):
            return {}
        if suffix == SEED:
            assert call.episode is not None  # The route requires one.
            await self.__seeded(call, session_id, call.episode)
            return {VERIFY_HEADER: self.__verify}
        if session_id is not None:
            self.__ended[call] = session_id
        return {}

    async def __seeded(self, call: ServedCall, session_id: str | None, episode: EpisodeId) -> None:
        if session_id is None:
            if self.__mode == "exported":
                raise InternalError(f"{self.__name} seeded a session and does not name it")
            return
        # The episode started over: it has no way to reach what was restored for it.
        for untouched in self.__sessions.untouched(episode):
            if untouched != session_id:
                await self.__retire(untouched)
        self.__sessions.bind(session_id, episode)
        self.__bound[call] = session_id

    async def call_ends(self, call: ServedCall) -> None:
        """Nothing is left of a session that ended, nor of a seed that did not succeed."""
        session_id = self.__ended.pop(call, None)
        entered = self.__entered.pop(call, None)
        if entered is not None and self.__sessions.episode_of(entered) is None:
            session_id = entered  # It ended meanwhile, and the call may have made it anew.
        if call.route.suffix == SEED:
            bound, named = self.__bound.pop(call, None), self.session_of(call)
            if bound is None and named is not None and self.__sessions.episode_of(named) is None:
                session_id = named
            elif call.has_failed:
                session_id = bound  # The reply broke off: nobody has this session.
        if session_id is not None:
            await self.__retire(session_id)

    def counts(self, gate: GateCounts) -> Mapping[str, int]:
        """Calls that run, and sessions that are held."""
        return {"inflight": gate.executions - gate.parked, "sessions": len(self.__sessions)}

    def held(self) -> Iterable[str]:
        """As :meth:`ParticipantHooks.held`."""
        return (episode.capture_key for _, episode in itertools.islice(self.__sessions, 3))

    def status(self, pending: int) -> Mapping[str, Any]:
        """What was declared."""
        return {"mode": self.__mode or "undeclared", "verify": self.__verify}

    async def export(self, scope: Scope) -> Export:
        """A record a session in scope.

        Raises:
            InvalidCheckpointStateError: no mode was declared, or the hook answered for
                sessions that nobody asked about.
            ValueRefusedError: a state that ``ckptfmt`` cannot carry; it is named.
        """
        self.__check_declared()
        wanted = {s: episode for s, episode in self.__sessions if episode in scope}
        if self.__mode == "stateless":
            return Export([_record(s, episode, None) for s, episode in wanted.items()])
        states = await self.export_session_states(tuple(wanted))
        if strangers := states.keys() - wanted.keys():
            raise InvalidCheckpointStateError(
                f"{self.__name} exported {len(strangers)} sessions that it was not asked for"
            )
        records = []
        for session_id, episode in wanted.items():
            if session_id in states:
                records.append(_record(session_id, episode, states[session_id]))
                await asyncio.sleep(0)  # Other requests, status among them, are served meanwhile.
            else:
                _logger.warning("%s: a session of %s is gone", self.__name, episode.capture_key)
                self.__sessions.end(session_id)
        return Export(records)

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.install`: every state is decoded before one is restored."""
        self.__check_declared()
        states: dict[str, Any] = {}
        owners: dict[str, EpisodeId] = {}
        with bulk_decode():  # All of it is kept: nothing is garbage.
            for record in records:
                if record.session_id in owners:
                    raise InvalidCheckpointStateError(
                        f"{record.key} is the session of two episodes"
                    )
                owners[record.session_id] = record.episode_id.continuation
                states[record.session_id] = self.__state_of(record)
                await asyncio.sleep(0)
        for episode in episodes:
            await self.free(episode)
        if self.__mode == "exported" and states:
            await self.__restore(states)
        for session_id, episode in owners.items():
            self.__sessions.bind(session_id, episode, is_restored=True)

    async def __restore(self, states: Mapping[str, Any]) -> None:
        try:
            await self.restore_session_states(states)
        except BaseException:
            for session_id in states:
                try:
                    await self.retire_session_state(session_id)
                except Exception:
                    _logger.exception("%s: a failed restore was not undone", self.__name)
            raise

    def __state_of(self, record: ResourcesRecord) -> Any:
        if record.state is None:
            return None
        if self.__mode == "stateless":
            raise InvalidCheckpointStateError(
                f"{record.key} has a state, and {self.__name} declares that it keeps none"
            )
        return record.state.value()

    async def free(self, episode: EpisodeId) -> None:
        """As :meth:`ParticipantHooks.free`."""
        for session_id in self.__sessions.up_to(episode):
            await self.__retire(session_id)

    async def release(self, episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.release`."""
        for episode in sorted(episodes):
            for session_id in self.__sessions.of(episode):
                await self.__retire(session_id)

    async def __retire(self, session_id: str) -> None:
        if self.__can_retire:
            await self.retire_session_state(session_id)
        # Last, so that one whose state could not be freed is found by the next attempt.
        self.__sessions.end(session_id)

    def __check_declared(self) -> None:
        if self.__mode is None:
            raise InvalidCheckpointStateError(
                f"{self.__name} declares no checkpoint_mode, and what it holds would be lost: "
                f'declare "stateless" or "exported" in {type(self).__name__} itself'
            )


_HOOKS: Final = ("export_session_states", "restore_session_states", "retire_session_state")


def _is_missing(cls: type[ResourcesHooks], hook: str) -> bool:
    return getattr(cls, hook) is getattr(ResourcesHooks, hook)


def _record(session_id: str, episode: EpisodeId, state: Any) -> ResourcesRecord:
    payload = None if state is None else payload_of(state, record_key(episode, session_id))
    return ResourcesRecord(episode_id=episode, session_id=session_id, state=payload, owner=None)
