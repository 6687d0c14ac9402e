"""Any sequence of a controller's operations over a network that loses things, beside a model.

The model knows each server's phase, its open id and its spent ids, and says of every
operation who is reached and whether it succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ckptfmt.identity import EpisodeId
from participant import coordination
from participant.coordination import Fleet
from participant.core.phases import Phase
from participant.errors import CoordinationError
from participant.testing.cluster import Delivery
from participant.testing.storage import MemoryStorage
from tests.support.jobs import Job

SERVERS = ["environment-1", "model-1", "agent-1", "resources-1", "resources-2"]
IDS = st.sampled_from(["ck1", "ck2", "ck3"])
# Lost on the way there: nothing happens.  Lost on the way back: all of it does.
LOST = st.sampled_from(["request", "reply"])
FAULTS = st.dictionaries(st.sampled_from(SERVERS), LOST, max_size=2)
R1 = EpisodeId("r1")


class Model:
    """One server, as far as a controller can tell."""

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.open_id: str | None = None
        self.spent: set[str] = set()

    def does(self, command: str, checkpoint_id: str) -> bool:
        """Carry out a command; whether it succeeds."""
        if command == "resume":
            return self.resume(checkpoint_id)
        if command == "retire":
            return self.phase is Phase.IDLE
        if checkpoint_id in self.spent or self.open_id not in (None, checkpoint_id):
            return False
        allowed = {
            "prepare": (Phase.IDLE, Phase.PREPARED),
            "commit": (Phase.PREPARED, Phase.COMMITTED),
            "renew": (Phase.PREPARED, Phase.COMMITTED),
        }
        if self.phase not in allowed[command]:
            return False
        if command != "renew":
            self.phase = {"prepare": Phase.PREPARED, "commit": Phase.COMMITTED}[command]
            self.open_id = checkpoint_id
        return True

    def resume(self, checkpoint_id: str) -> bool:
        """End a checkpoint, or fence its id."""
        if self.open_id not in (None, checkpoint_id) and checkpoint_id not in self.spent:
            return False
        if self.open_id == checkpoint_id:
            self.phase, self.open_id = Phase.IDLE, None
        self.spent.add(checkpoint_id)
        return True


class OneController(RuleBasedStateMachine):
    """Rules are the operations; the invariant compares every server with its model."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.begin())
        self.models = {server: Model() for server in SERVERS}

    async def begin(self) -> None:
        """Start the servers."""
        self.job = Job(Path("unused"), MemoryStorage(), lease_grace_seconds=100.0)
        self.job.hold([R1])
        self.fleet: Fleet = await self.job.discover()

    def does(
        self,
        command: str,
        checkpoint_id: str,
        work: Coroutine[Any, Any, object],
        faults: dict[str, str],
        stages: Iterable[Iterable[str]],
        *,
        stops: bool,
    ) -> None:
        """Let the model and the controller do the same, and compare how it ends."""
        failures: set[str] = set()
        for stage in stages:
            for server in stage:
                fault = faults.get(server)
                succeeds = fault != "request" and self.models[server].does(command, checkpoint_id)
                if not succeeds or fault == "reply":
                    failures.add(server)
            if stops and failures:
                break
        lost = {"request": Delivery(copies=0), "reply": Delivery(loses_reply=True)}
        self.job.deliver(lambda s, c: lost[faults[s]] if c == command and s in faults else None)
        found: set[tuple[str, str]] = set()
        try:
            self.loop.run_until_complete(self.job.passing(work, step_s=0.1))
        except CoordinationError as error:
            found = {(error.operation, server) for server in error.failures}
        assert found == {(command, server) for server in failures}

    @rule(checkpoint_id=IDS, faults=FAULTS)
    def prepare(self, checkpoint_id: str, faults: dict[str, str]) -> None:
        work = coordination.prepare(self.job.control, self.fleet, checkpoint_id, 10)
        stages = [[SERVERS[0]], [SERVERS[1]], [SERVERS[2]], SERVERS[3:]]
        self.does("prepare", checkpoint_id, work, faults, stages, stops=True)

    @rule(checkpoint_id=IDS, faults=FAULTS)
    def commit(self, checkpoint_id: str, faults: dict[str, str]) -> None:
        work = coordination.commit(
            self.job.control, self.fleet, checkpoint_id, checkpoint_id, [R1], 10
        )
        self.does("commit", checkpoint_id, work, faults, [SERVERS], stops=False)

    @rule(checkpoint_id=IDS, faults=FAULTS)
    def renew(self, checkpoint_id: str, faults: dict[str, str]) -> None:
        work = coordination.renew(self.job.control, self.fleet, checkpoint_id, 10)
        self.does("renew", checkpoint_id, work, faults, [SERVERS], stops=False)

    @rule(checkpoint_id=IDS, faults=FAULTS)
    def resume(self, checkpoint_id: str, faults: dict[str, str]) -> None:
        work = coordination.resume(self.job.control, self.fleet, checkpoint_id, 10)
        self.does("resume", checkpoint_id, work, faults, [SERVERS[::-1]], stops=False)

    @rule(faults=FAULTS)
    def retire(self, faults: dict[str, str]) -> None:
        work = coordination.retire(self.job.control, self.fleet, "any", [EpisodeId("gone")], 10)
        stages = [[SERVERS[0]], [SERVERS[2]], [SERVERS[1], *SERVERS[3:]]]
        self.does("retire", "any", work, faults, stages, stops=True)

    @rule()
    def the_controller_is_silent(self) -> None:
        self.loop.run_until_complete(self.job.clock.advance(5000))
        for model in self.models.values():
            if model.open_id is not None:
                model.resume(model.open_id)

    @rule(server=st.sampled_from(SERVERS))
    def a_server_is_restarted(self, server: str) -> None:
        self.loop.run_until_complete(self.job.servers[server].close())
        self.job.start(self.job.servers[server].participant)
        self.models[server] = Model()

    @invariant()
    def every_server_is_where_its_model_is(self) -> None:
        for server, model in self.models.items():
            status = self.job.servers[server].status()
            assert (status.phase, status.checkpoint_id) == (model.phase, model.open_id), server

    def teardown(self) -> None:
        """Whatever happened, the leases free everybody."""
        self.the_controller_is_silent()
        self.every_server_is_where_its_model_is()
        self.loop.run_until_complete(self.job.check_at_rest())
        self.loop.run_until_complete(self.job.close())
        self.loop.close()


TestOneController = OneController.TestCase
TestOneController.settings = settings(
    max_examples=max(settings().max_examples // 2, 1), stateful_step_count=20
)
