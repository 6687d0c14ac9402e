"""The agent server: the Simple Agent, with the job's model and tools."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from examples.job.peers import Peers
from examples.job.setup import Setup, serve
from participant.attribution import current_episode
from participant.http.disconnect import until_gone
from participant.roles.simple_agent import Message, SimpleAgent

__all__ = ["Agent", "make_app"]


class Agent:
    """The routes of the server."""

    def __init__(self, setup: Setup) -> None:
        self.hooks = SimpleAgent()
        self.peers = Peers(setup)

    async def seed(self, request: Request) -> JSONResponse:
        """Begin a session."""
        key = (await request.json())["key"]
        async with self.hooks.seed(current_episode.get(), key, gone=until_gone(request.receive)):
            pass  # There is nothing to a session but its loop.
        return JSONResponse({})

    async def respond(self, request: Request) -> JSONResponse:
        """Carry a conversation on until the model asks for no more tools."""
        body = await request.json()
        tools = _Session(self.peers, body["cookie"], body["token_s"])
        messages = await self.hooks.respond(
            current_episode.get(), body["key"], body["messages"], tools.ask_model, tools.use_tool,
            gone=until_gone(request.receive),
        )  # fmt: skip
        return JSONResponse({"messages": messages})

    async def close(self, request: Request) -> JSONResponse:
        """End a session; it may be gone already."""
        await self.hooks.close(current_episode.get(), (await request.json())["key"])
        return JSONResponse({})


class _Session:
    """How the loop of one session calls the model and the tools."""

    def __init__(self, peers: Peers, cookie: str, token_s: float) -> None:
        self._peers = peers
        self._cookie = cookie
        self._token_s = token_s

    async def ask_model(self, messages: list[Message]) -> Message:
        """Every other call, told by the length of the conversation, is answered as a stream."""
        path = "/v1/chat/completions"
        body: dict[str, Any] = {"messages": messages, "token_s": self._token_s, "stream": False}
        if len(messages) % 4 == 1:
            reply = await self._peers.post("model", path, body)
            message: Message = reply.members["message"]
            return message
        message = {"role": "assistant", "content": ""}
        async for delta in self._peers.stream("model", path, {**body, "stream": True}):
            message["content"] += delta.pop("content", "")
            message |= delta
        return message

    async def use_tool(self, name: str, arguments: str) -> str:
        """A tool of the resources server."""
        body = {"tool": name, "arguments": arguments}
        reply = await self._peers.post("resources", "/use_tool", body, cookie=self._cookie)
        result: str = reply.members["result"]
        return result


def make_app(setup: Setup) -> Starlette:
    """The server."""
    agent = Agent(setup)
    app = Starlette(
        routes=[
            Route("/seed_session", agent.seed, methods=["POST"]),
            Route("/respond", agent.respond, methods=["POST"]),
            Route("/close_session", agent.close, methods=["POST"]),
        ],
        lifespan=agent.peers.lifespan,
    )
    participant.install(app, agent.hooks, setup.settings, kind="agent", instance="simple")
    return app


if __name__ == "__main__":
    serve(make_app(Setup.read()), Setup.read())
