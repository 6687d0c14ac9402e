"""A resources server whose state is alive: a card game that shuffles as it goes.

The trap: a ``random.Random`` has no spelling in JSON, its ``getstate()`` is made of tuples,
and ``setstate()`` takes nothing else.  Saving the seed instead would deal the first cards
again.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from participant.http.session_cookies import SessionCookieMiddleware
from participant.roles.resources import ResourcesHooks

CARDS = [f"{rank}{suit}" for suit in "SHDC" for rank in "A23456789TJQK"]


@dataclass
class Game:
    """A deck that is shuffled again after each draw, and the hand."""

    dealer: random.Random
    deck: list[str] = field(default_factory=lambda: list(CARDS))
    hand: list[str] = field(default_factory=list)

    def draw(self, count: int) -> list[str]:
        """Cards from the top; the rest is shuffled."""
        drawn, self.deck = self.deck[:count], self.deck[count:]
        self.dealer.shuffle(self.deck)
        self.hand += drawn
        return drawn

    def state(self) -> Any:
        """Everything, as values; the lists are copied, since the game goes on after resume."""
        return {
            "dealer": self.dealer.getstate(),
            "deck": list(self.deck),
            "hand": list(self.hand),
        }

    @classmethod
    def from_state(cls, state: Any) -> Self:
        """The game as it was."""
        dealer = random.Random()
        dealer.setstate(state["dealer"])
        return cls(dealer, list(state["deck"]), list(state["hand"]))


class CardGame(ResourcesHooks):
    """A game a session."""

    checkpoint_mode = "exported"

    def __init__(self) -> None:
        super().__init__()
        self.games: dict[str, Game] = {}

    async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
        """The games that are still played."""
        return {s: self.games[s].state() for s in session_ids if s in self.games}

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """Rebuild all games before one of them is on the table."""
        self.games.update({s: Game.from_state(state) for s, state in states.items()})

    async def retire_session_state(self, session_id: str) -> None:
        """Nothing happens where there is nothing."""
        self.games.pop(session_id, None)

    async def seed(self, request: Request) -> JSONResponse:
        """Begin a game; the same ``seed`` deals the same cards."""
        game = Game(random.Random((await request.json())["seed"]))
        game.dealer.shuffle(game.deck)
        session_id = request.session["session_id"] = uuid.uuid4().hex
        self.games[session_id] = game
        return JSONResponse({})

    async def draw(self, request: Request) -> JSONResponse:
        """The tool: draw cards."""
        count = (await request.json())["count"]
        return JSONResponse({"cards": self.games[request.session["session_id"]].draw(count)})

    async def verify(self, request: Request) -> JSONResponse:
        """Reward the aces in the hand."""
        hand = self.games[request.session["session_id"]].hand
        return JSONResponse({"reward": sum(card[0] == "A" for card in hand) / 4})

    async def close(self, request: Request) -> JSONResponse:
        """Clear the table; it may be clear already."""
        await self.retire_session_state(request.session.get("session_id", ""))
        return JSONResponse({})


def make_app(settings: participant.Settings, *, secret: str, components: Any = None) -> Starlette:
    """The server; ``secret`` signs the cookies, and is the same after a restart."""
    game = CardGame()
    app = Starlette(
        routes=[
            Route("/seed_session", game.seed, methods=["POST"]),
            Route("/draw", game.draw, methods=["POST"]),
            Route("/verify", game.verify, methods=["POST"]),
            Route("/close_session", game.close, methods=["POST"]),
        ],
        middleware=[Middleware(SessionCookieMiddleware, secret=secret)],
    )
    participant.install(
        app, game, settings, kind="resources", instance="cards", components=components
    )
    return app


if __name__ == "__main__":
    settings = participant.Settings(enabled=True, control_auth_token=os.environ["CHECKPOINT_TOKEN"])
    uvicorn.run(
        make_app(settings, secret=os.environ["SESSION_SECRET"]), port=int(os.environ["PORT"])
    )
