"""A server that counts for episodes, and takes part in checkpoints."""

from __future__ import annotations

import os

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from participant.attribution import current_episode
from participant.hooks import GatedRoute
from participant.roles.generic import StateTable


class Counters(StateTable):
    """The total of each episode: what a checkpoint holds of this server."""

    gated_routes = (GatedRoute("/count"), GatedRoute("/close_session", is_cleanup=True))


counters = Counters()


async def count(request: Request) -> JSONResponse:
    """Add ``by`` to the episode's total."""
    episode = current_episode.get()
    assert episode is not None  # A gated route is not called without one.
    total = counters.get(episode, 0) + (await request.json())["by"]
    counters[episode] = total
    return JSONResponse({"total": total})


async def close_session(request: Request) -> JSONResponse:
    """Forget the episode."""
    episode = current_episode.get()
    assert episode is not None
    counters.discard(episode)
    return JSONResponse({})


app = Starlette(
    routes=[
        Route("/count", count, methods=["POST"]),
        Route("/close_session", close_session, methods=["POST"]),
    ]
)
settings = participant.Settings.load(
    {"enabled": True, "control_auth_token": os.environ["CHECKPOINT_TOKEN"]}
)
participant.install(app, counters, settings, kind="counter", instance="counter-1")

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ["PORT"]), log_level="warning")
