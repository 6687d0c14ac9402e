"""The environment server: owns the episodes.

An episode seeds its sessions, gives the agent one user's turn after the other, has the
outcome verified, and closes.  The activation of the agent may be repeated after a crash:
the agent goes on from its own boundary.  Everything else is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from examples.job.peers import Peers, Reply
from examples.job.setup import Setup, serve
from participant.attribution import episode_of_run
from participant.core.steps import StepMode
from participant.http.disconnect import until_gone
from participant.roles.environment import EnvironmentHooks, EpisodeRun
from participant.roles.verify_mode import verify_mode

__all__ = ["Environment", "make_app"]

State = dict[str, Any]


class Environment:
    """``POST /run``."""

    def __init__(self, setup: Setup) -> None:
        self.hooks = EnvironmentHooks()
        self.peers = Peers(setup)

    async def run(self, request: Request) -> JSONResponse:
        """Run the episode that the body names, on its ``task``."""
        body = await request.json()
        task, gone = body["task"], until_gone(request.receive)
        async with self.hooks.begin(episode_of_run(body), task, gone=gone) as run:
            state = await _Episode(run, task, self.peers).play()
        return JSONResponse({"messages": state["messages"], "reward": state["reward"]})


class _Episode:
    """One run of an episode."""

    def __init__(self, run: EpisodeRun, task: Mapping[str, Any], peers: Peers) -> None:
        assert run.episode is not None
        self._run = run
        self._episode = run.episode
        self._task = task
        self._peers = peers
        self._key = run.episode.rollout_id

    async def play(self) -> State:
        """From the input or the restored boundary to the reward."""
        state = self._run.restored or await self._seed()
        self._run.clean_up(lambda: self._close(state["cookie"]))
        for turn in range(state["turn"], len(self._task["turns"])):
            state = await self._give(state, self._task["turns"][turn])
        return state if state["reward"] is not None else await self._verify(state)

    async def _seed(self) -> State:
        desk = {name: self._task[name] for name in ("document", "seed", "step_s")}
        async with self._run.step():
            await self._post("agent", "/seed_session", {"key": self._key})
            seeded = await self._post("resources", "/seed_session", desk)
        return await self._at(
            turn=0, messages=[], reward=None,
            cookie=seeded.cookie, verify=str(verify_mode(seeded.headers)),
        )  # fmt: skip

    async def _give(self, state: State, text: str) -> State:
        body = {
            "key": self._key,
            "messages": [*state["messages"], {"role": "user", "content": text}],
            "cookie": state["cookie"],
            "token_s": self._task["token_s"],
        }
        async with self._run.step(StepMode.REPLAY):
            reply = await self._post("agent", "/respond", body)
        messages = reply.members["messages"]
        return await self._at(**{**state, "turn": state["turn"] + 1, "messages": messages})

    async def _verify(self, state: State) -> State:
        async with self._run.step(StepMode(state["verify"])):
            reply = await self._post("resources", "/verify", {}, state["cookie"])
        return await self._at(**{**state, "reward": reply.members["reward"]})

    async def _close(self, cookie: str) -> None:
        await self._post("agent", "/close_session", {"key": self._key})
        await self._post("resources", "/close_session", {}, cookie)

    async def _at(self, **state: Any) -> State:
        """A boundary."""
        await self._run.boundary(state)
        return state

    async def _post(self, kind: str, path: str, body: Any, cookie: str = "") -> Reply:
        return await self._peers.post(kind, path, body, episode=self._episode, cookie=cookie)


def make_app(setup: Setup) -> Starlette:
    """The server."""
    environment = Environment(setup)
    app = Starlette(
        routes=[Route("/run", environment.run, methods=["POST"])],
        lifespan=environment.peers.lifespan,
    )
    participant.install(
        app, environment.hooks, setup.settings, kind="environment", instance="office"
    )
    return app


if __name__ == "__main__":
    serve(make_app(Setup.read()), Setup.read())
