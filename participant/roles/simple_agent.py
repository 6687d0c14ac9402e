"""A worked example: an agent whose loop is a model call and the tools that it asks for.

Messages are those of chat completions: a reply may have ``tool_calls``, each of which is
answered by a message of the role ``tool``.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ckptfmt.identity import EpisodeId
from participant.roles.agent import LoopOnlyHooks
from participant.roles.environment import task_digest
from participant.runtime.admission import Gone

__all__ = ["AskModel", "Message", "SimpleAgent", "UseTool"]

Message = dict[str, Any]

AskModel = Callable[[list[Message]], Awaitable[Message]]
"""Gives the model's reply to a conversation."""

UseTool = Callable[[str, str], Awaitable[str]]
"""Calls a tool by its name, with arguments as JSON text; gives what the model is to see."""

_MAX_TURNS: Final = 32


class SimpleAgent(LoopOnlyHooks):
    """Asks the model until it asks for no more tools, or ``max_turns`` times.

    All that a session holds is the conversation, and that is in the boundary: before each
    model call, and after the last round of tools.
    """

    def __init__(self, *, max_turns: int = _MAX_TURNS) -> None:
        super().__init__()
        self._max_turns = max_turns

    async def respond(
        self,
        episode: EpisodeId | None,
        key: str,
        request: Sequence[Message],
        ask_model: AskModel,
        use_tool: UseTool,
        *,
        gone: Gone | None = None,
    ) -> list[Message]:
        """Carry the conversation ``request`` on to its end: all of its messages.

        After a restore the same request goes on where the loop was; another one, which the
        restored session has not seen, begins from its input.  What ``ask_model`` or
        ``use_tool`` raises fails the activation: no error ever becomes a message.

        Raises:
            ParticipantError: as :meth:`AgentHooks.activate`.
        """
        async with self.activate(episode, key, gone=gone) as loop:
            chat = _Chat(request, loop.restored)
            while not self._is_over(chat):
                async with loop.model_call(chat.snapshot()):
                    reply = await ask_model(list(chat.messages))
                chat.turns += 1
                chat.messages.append(reply)
                for call in reply.get("tool_calls") or ():
                    function = call["function"]
                    content = await use_tool(function["name"], function["arguments"])
                    chat.messages.append(
                        {"role": "tool", "tool_call_id": call["id"], "content": content}
                    )
            await loop.boundary(chat.snapshot())
            return chat.messages

    def _is_over(self, chat: _Chat) -> bool:
        last = chat.messages[-1] if chat.turns else None
        has_answered = last is not None and last.get("role") != "tool"
        return has_answered or chat.turns >= self._max_turns


class _Chat:
    """A conversation under way; messages are only ever added."""

    def __init__(self, request: Sequence[Message], restored: Any) -> None:
        self._digest = task_digest(list(request))
        self.turns = 0
        self.messages = list(request)
        if restored is not None and restored["request"] == self._digest:
            self.turns = restored["turns"]
            self.messages = restored["messages"]

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """The conversation as it is now, to be told later."""
        return functools.partial(self._at, self.turns, len(self.messages))

    def _at(self, turns: int, length: int) -> dict[str, Any]:
        return {"request": self._digest, "turns": turns, "messages": self.messages[:length]}
