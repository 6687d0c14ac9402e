"""Mutations of the roles of environment and agent servers, and of how their work ends."""

from __future__ import annotations

from tests.mutants.participant import Mutant

__all__ = ["MUTANTS"]

ENVIRONMENT = "tests/participant/roles/test_environment.py::"
AGENT = "tests/participant/roles/test_agent.py::"
LOOP = "tests/participant/roles/test_activation.py::"
SIMPLE = "tests/participant/roles/test_simple_agent.py::"
ENDS = "tests/participant/runtime/test_clean_ups.py::"

MUTANTS = [
    Mutant(
        "continue a restored episode with another task",
        "roles/environment.py",
        "if record is not None and record.task_digest != digest:",
        "if False:",
        ENVIRONMENT + "another_task_is_refused",
    ),
    Mutant(
        "look at the task only before the wait",
        "runtime/execution.py",
        "            if check is not None:\n                check()\n",
        "",
        ENVIRONMENT + "refused_after_it_waited",
    ),
    Mutant(
        "consume a restored record before its replacement starts",
        "roles/environment.py",
        "        digest = task_digest(task)\n",
        "        digest = task_digest(task)\n        self._restored.discard(episode)\n",
        ENVIRONMENT + "waits_has_not_consumed",
    ),
    Mutant(
        "keep a restored record that was consumed",
        "roles/environment.py",
        "        self._restored.discard(episode)\n",
        "",
        ENVIRONMENT + "another_task_is_refused",
    ),
    Mutant(
        "forget an unstarted replacement",
        "roles/environment.py",
        "            for episode in self._restored.episodes()\n            if episode in scope",
        "            for episode in self._restored.episodes()\n            if False",
        ENVIRONMENT + "waits_has_not_consumed",
    ),
    Mutant(
        "a replacement is at no boundary before its first own",
        "roles/environment.py",
        "        execution.boundary_state = restored\n",
        "",
        ENVIRONMENT + "at_its_boundary_until",
    ),
    Mutant(
        "run an episode of no rollout",
        "roles/work.py",
        "if episode is None and self.is_gated:",
        "if False:",
        ENVIRONMENT + "refused_before_any_side_effect",
    ),
    Mutant(
        "keep a waiting call whose client has gone",
        "runtime/admission.py",
        "if gone is None or not execution.is_waiting:",
        "if True:",
        ENVIRONMENT + "goes_away_while_it_waits",
    ),
    Mutant(
        "clean up what is still to be exported",
        "runtime/clean_ups.py",
        "            async with held(execution):\n                yield\n",
        "            yield\n",
        ENDS + "held_ahead_of_its_clean_ups",
    ),
    Mutant(
        "send the reply of a finished episode during a checkpoint",
        "runtime/clean_ups.py",
        "    async with held(execution):\n        try:\n",
        "    if True:\n        try:\n",
        ENDS + "held_until_resume",
    ),
    Mutant(
        "send a failure during a checkpoint",
        "runtime/clean_ups.py",
        "    except Exception:\n        await execution.boundary(execution.boundary_state)\n",
        "    except Exception:\n",
        LOOP + "failure_of_the_model_call",
    ),
    Mutant(
        "interrupt a clean-up by a cancellation",
        "runtime/clean_ups.py",
        "    while not any(task.done() for task in tasks):\n",
        "    for _ in range(1):\n",
        ENDS + "does_not_interrupt_it",
    ),
    Mutant(
        "clean up first things first",
        "runtime/clean_ups.py",
        "work = self._left.pop()",
        "work = self._left.pop(0)",
        ENDS + "last_first",
    ),
    Mutant(
        "a failed clean-up keeps the others from running",
        "runtime/clean_ups.py",
        '                _logger.exception("a clean-up failed")\n',
        '                _logger.exception("a clean-up failed")\n                return\n',
        ENDS + "last_first",
    ),
    Mutant(
        "wait for clean-ups for ever",
        "runtime/clean_ups.py",
        "was_cancelled = await _outlast({work, limit})",
        "was_cancelled = await _outlast({work})",
        ENDS + "one_time_out",
    ),
    Mutant(
        "let a retire cancel what comes after the episode",
        "runtime/admission.py",
        "                await asyncio.sleep(0)\n",
        "                pass\n",
        ENDS + "not_by_what_follows",
    ),
    Mutant(
        "go on with a model's reply while a checkpoint is open",
        "roles/activation.py",
        "async with held(self._execution), self._execution.step(StepMode.REPLAY):",
        "async with self._execution.step(StepMode.REPLAY):",
        LOOP + "reply_that_arrives",
    ),
    Mutant(
        "wait for the model call after a boundary",
        "roles/activation.py",
        "self._execution.step(StepMode.REPLAY):",
        "self._execution.step(StepMode.WAIT):",
        LOOP + "waiting_for_the_model",
    ),
    Mutant(
        "take a snapshot at every boundary",
        "roles/activation.py",
        "        self._session.boundary = snapshot\n",
        "        self._session.boundary = (lambda value: lambda: value)(snapshot())\n",
        LOOP + "waiting_for_the_model",
    ),
    Mutant(
        "tell every activation what was restored",
        "roles/activation.py",
        "            session.is_restored = False\n",
        "",
        LOOP + "told_to_one_activation",
    ),
    Mutant(
        "forget a session when its loop has ended",
        "roles/agent.py",
        "                    if self.owns_episodes:\n                        await",
        "                    if True:\n                        await",
        LOOP + "whose_loop_has_ended",
    ),
    Mutant(
        "a session is idle before it is built",
        "roles/agent.py",
        "            try:\n                yield\n            except BaseException:",
        "            self._register(episode, Session(key))\n"
        "            try:\n                yield\n            except BaseException:",
        AGENT + "one_in_progress_blocks",
    ),
    Mutant(
        "leave what a failed seed has built",
        "roles/agent.py",
        "await uninterrupted(self.retire_agent_session(key))\n",
        "pass\n",
        AGENT + "seed_that_fails",
    ),
    Mutant(
        "let another attempt have the session",
        "roles/agent.py",
        "        if owner not in (None, episode):",
        "        if False:",
        AGENT + "session_of_another_attempt",
    ),
    Mutant(
        "close a session under its loop",
        "roles/agent.py",
        "        if session is not None and session.activation is not None:",
        "        if False:",
        AGENT + "second_activation",
    ),
    Mutant(
        "forget a session whose retire failed",
        "roles/agent.py",
        "        await self.retire_agent_session(key)\n        self._table.end(key)\n",
        "        self._table.end(key)\n        await self.retire_agent_session(key)\n",
        AGENT + "whose_hook_fails",
    ),
    Mutant(
        "take a checkpoint of an agent that cannot continue",
        "roles/agent.py",
        "if self.cannot_continue is not None and self._sessions:",
        "if False:",
        AGENT + "cannot_continue",
    ),
    Mutant(
        "register sessions that were not restored",
        "roles/agent.py",
        "        if restored:\n            await self.restore_agent_sessions(restored)\n"
        "        for told in restored:\n"
        "            self._register(told.episode, sessions[told.key])\n",
        "        for told in restored:\n"
        "            self._register(told.episode, sessions[told.key])\n"
        "        if restored:\n            await self.restore_agent_sessions(restored)\n",
        AGENT + "restored_or_none",
    ),
    Mutant(
        "take one turn more than is permitted",
        "roles/simple_agent.py",
        "chat.turns >= self._max_turns",
        "chat.turns > self._max_turns",
        SIMPLE + "last_turn",
    ),
    Mutant(
        "answer another request from the restored conversation",
        "roles/simple_agent.py",
        'if restored is not None and restored["request"] == self._digest:',
        "if restored is not None:",
        SIMPLE + "another_request",
    ),
]
