"""Mutations of ``participant``: each breaks one rule, and the named test has to notice.

``old`` stands exactly once in ``path``; ``test`` is a pytest node, ``::`` and a part of the
name of what has to fail.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTANTS", "Mutant"]

CORE = "tests/participant/core/"
STORY = "tests/scenarios/test_participant.py::"
FAULT = "tests/faults/test_participant.py::"
RESTORE = "tests/faults/test_participant_restore.py::"
ADMISSION = "tests/participant/runtime/test_admission.py::"
ROUTES = "tests/participant/http/test_routes.py::"
GATED = "tests/participant/http/test_admission.py::"
JOBS = "tests/participant/runtime/test_jobs.py::"
PHASES = CORE + "test_phases.py::"
MACHINE = CORE + "test_machine.py::"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect, and the test that finds it."""

    name: str
    path: str
    old: str
    new: str
    test: str


MUTANTS = [
    Mutant(
        "drop the fence",
        "core/restore_rules.py",
        "if batch.leaves_fence:",
        "if False:",
        STORY + "retire]",
    ),
    Mutant(
        "a fence for the exact attempt only",
        "core/fences.py",
        "episode.attempt > fence.attempt",
        "episode.attempt != fence.attempt",
        CORE + "test_fences.py::covers_its_attempt",
    ),
    Mutant(
        "fences without a bound",
        "core/fences.py",
        "if len(self._fences) >= self._limit:",
        "if False:",
        CORE + "test_fences.py::bounded_in_number",
    ),
    Mutant(
        "the retire of a failed restore leaves a fence",
        "core/restore_rules.py",
        "leaves_fence=not rolls_back",
        "leaves_fence=True",
        STORY + "restore_outlived",
    ),
    Mutant(
        "a restore does not lift fences",
        "core/restore_rules.py",
        "            state.fences.lift(episode)",
        "            pass",
        MACHINE + "lifts_the_fence",
    ),
    Mutant(
        "count parked time",
        "runtime/execution.py",
        "if self.state is StepState.PARKED or in_replay:",
        "if in_replay:",
        ADMISSION + "parked_time_does_not_count",
    ),
    Mutant(
        "count time in a replay step during a checkpoint",
        "runtime/execution.py",
        "if self.state is StepState.PARKED or in_replay:",
        "if self.state is StepState.PARKED:",
        ADMISSION + "time_in_a_replay_step",
    ),
    Mutant(
        "publish after abandonment",
        "runtime/jobs.py",
        "clear = self._saves[number].publication.abandon()",
        "clear = True",
        FAULT + "called_off_publishes_nothing",
    ),
    Mutant(
        "release before writing",
        "core/committing.py",
        "            self._desk.emit(Write(",
        "            self._desk.emit(Release(save.number, save.scope.left_out(restored)))\n"
        "            self._desk.emit(Write(",
        STORY + "restore]",
    ),
    Mutant(
        "open admission without calling the write off",
        "core/machine.py",
        "        state.committing.call_off()\n",
        "",
        MACHINE + "called_off_before_admission_opens",
    ),
    Mutant(
        "publish though the lease has run out",
        "runtime/shell.py",
        "return expires_at is not None and self._clock.monotonic() < expires_at",
        "return True",
        FAULT + "lease_runs_out_while_the_disk_hangs",
    ),
    Mutant(
        "do not wait for a claimed publication",
        "core/machine.py",
        "is_moving = state.holds or not (save is None or save.is_settled)",
        "is_moving = bool(state.holds)",
        FAULT + "publication_is_claimed_waits",
    ),
    Mutant(
        "forget a doubt about a publication",
        "core/committing.py",
        "            self._doubts.add(save.number)",
        "            pass",
        FAULT + "shown_as_unknown",
    ),
    Mutant(
        "export again after a failed write",
        "core/committing.py",
        "SaveStage.WRITING: SaveStage.EXPORTED,",
        "SaveStage.WRITING: SaveStage.NEW,",
        FAULT + "full_disk",
    ),
    Mutant(
        "start a second thread instead of joining the first",
        "runtime/bounded_io.py",
        "running = self._running.get(key)",
        "running = None",
        RESTORE + "reading_that_hangs",
    ),
    Mutant(
        "store what the scope leaves out",
        "core/checkpoint_rules.py",
        "        if strangers:",
        "        if False:",
        FAULT + "bad_records[outside",
    ),
    Mutant(
        "store two records of one key",
        "runtime/jobs.py",
        "        if key in keys:",
        "        if False:",
        FAULT + "bad_records[twice",
    ),
    Mutant(
        "commit without asking again whether all is ready",
        "core/checkpoint_rules.py",
        "            self._check_ready()",
        "            pass",
        MACHINE + "commit_names_what_keeps_it",
    ),
    Mutant(
        "commit another scope under the same id",
        "core/committing.py",
        "if (save.checkpoint_dir, save.scope) != (",
        "if (save.checkpoint_dir, save.checkpoint_dir) == (",
        STORY + "checkpoint]",
    ),
    Mutant(
        "the lease does not run in committed",
        "core/machine.py",
        "state.lease.has_expired(now):",
        "state.lease.has_expired(now) and state.phase is not Phase.COMMITTED:",
        PHASES + "lease_frees_every_phase",
    ),
    Mutant(
        "a late renewal cuts the lease",
        "core/lease.py",
        "max(self.expires_at, until)",
        "until",
        CORE + "test_lease.py::never_shrinks",
    ),
    Mutant(
        "the lease is only looked at by the timer",
        "core/machine.py",
        "        self._expire(now)\n        handler",
        "        if isinstance(event, ev.Tick):\n            self._expire(now)\n        handler",
        MACHINE + "though_no_tick_came",
    ),
    Mutant(
        "an expired id may be used again",
        "core/machine.py",
        "        state.remember(state.checkpoint_id)\n",
        "",
        PHASES + "lease_frees_every_phase",
    ),
    Mutant(
        "resuming an unknown id does not spend it",
        "core/machine.py",
        "            state.remember(request.checkpoint_id)\n",
        "",
        PHASES + "spent_id",
    ),
    Mutant(
        "remember one id too few",
        "core/state.py",
        "while len(self.resumed) > REMEMBERED_IDS:",
        "while len(self.resumed) >= REMEMBERED_IDS:",
        MACHINE + "last_64_resumed_ids",
    ),
    Mutant(
        "a prepare past its deadline closes admission",
        "core/checkpoint_rules.py",
        "if call.budget_s <= 0:",
        "if False:",
        PHASES + "prepare_past_its_deadline",
    ),
    Mutant(
        "a prepare that a resume interrupts is never answered",
        "core/machine.py",
        "            desk.answer_all(Move.PREPARE, reply)",
        "            pass",
        STORY + "ending",
    ),
    Mutant(
        "ready before the hooks are closed",
        "core/checkpoint_rules.py",
        "not state.hooks_closed or state.ending",
        "state.ending",
        STORY + "admission",
    ),
    Mutant(
        "list the blockers at every wake-up",
        "core/checkpoint_rules.py",
        "            if state.blocking():\n                return",
        "            if not state.report().ready:\n                return",
        MACHINE + "at_most_twice",
    ),
    Mutant(
        "list every blocker",
        "core/messages.py",
        "MAX_LISTED_BLOCKERS: Final = 100",
        "MAX_LISTED_BLOCKERS: Final = 10_000",
        MACHINE + "5000_blockers",
    ),
    Mutant(
        "readiness is never polled",
        "core/machine.py",
        "self._checkpoint.poll_at if state.phase is Phase.PREPARING else None",
        "None",
        MACHINE + "polled_every_second",
    ),
    Mutant(
        "retire while a checkpoint is open",
        "core/phases.py",
        "    (Phase.PREPARING, Move.PREPARE): Phase.PREPARING,",
        "    (Phase.PREPARING, Move.RETIRE): Phase.PREPARING,\n"
        "    (Phase.PREPARING, Move.PREPARE): Phase.PREPARING,",
        FAULT + "straggler_is_led_out",
    ),
    Mutant(
        "cancel a second time",
        "core/retiring.py",
        "            if not call.cancelled:",
        "            if True:",
        MACHINE + "overlapping_retires",
    ),
    Mutant(
        "free before the work has ended",
        "core/retiring.py",
        "            member.stage = MemberStage.STOPPED\n            if not member.running:",
        "            member.stage = MemberStage.STOPPED\n            if True:",
        ADMISSION + "ends_the_inner_tasks",
    ),
    Mutant(
        "leave inner tasks behind",
        "runtime/execution.py",
        "        while self._inner:",
        "        while False:",
        ADMISSION + "ends_the_inner_tasks",
    ),
    Mutant(
        "interrupt the final clean-up",
        "runtime/execution.py",
        "if not self._shields and not self.is_in_thread():\n",
        "if not self.is_in_thread():\n",
        ADMISSION + "final_clean_up",
    ),
    Mutant(
        "a retire does not cover earlier attempts",
        "core/retiring.py",
        "any(member.covers(episode) for",
        "any(member == episode for",
        STORY + "retire]",
    ),
    Mutant(
        "a retired call waits on",
        "core/retiring.py",
        "            if call.waits:",
        "            if call.waits and False:",
        STORY + "retire_in_restored",
    ),
    Mutant(
        "an attempt that is being retired does not block a checkpoint",
        "core/retiring.py",
        "                self._blockers.add(episode)",
        "                pass",
        FAULT + "cannot_stop_blocks",
    ),
    Mutant(
        "a retire does not wait for an install",
        "core/restore_rules.py",
        "if not is_installing and not state.holds:",
        "if True:",
        STORY + "restore_outlived",
    ),
    Mutant(
        "admission opens while an install goes on",
        "core/machine.py",
        "state.phase is not Phase.IDLE or state.restoring is not None or state.holds",
        "state.phase is not Phase.IDLE or state.holds",
        RESTORE + "install_that_outlives",
    ),
    Mutant(
        "admission opens while restored state is being freed",
        "core/machine.py",
        "state.phase is not Phase.IDLE or state.restoring is not None or state.holds",
        "state.phase is not Phase.IDLE or state.restoring is not None",
        STORY + "restore_release]",
    ),
    Mutant(
        "half of a failed install stays",
        "core/restore_rules.py",
        "self._drop(restoring, releases=restoring.is_installing)",
        "self._drop(restoring, releases=False)",
        RESTORE + "install_that_raises",
    ),
    Mutant(
        "what a restore brought stays after its lease",
        "core/machine.py",
        "            self._lose_restored(now)",
        "            pass",
        RESTORE + "restore_that_runs_out_of_its_lease",
    ),
    Mutant(
        "a process whose restore ran out counts as fresh",
        "core/machine.py",
        "        state.is_spoiled = True",
        "        state.is_spoiled = False",
        STORY + "lease_of_a_restore",
    ),
    Mutant(
        "restore into a process that has served",
        "core/restore_rules.py",
        "        if state.gate.has_served:",
        "        if False:",
        RESTORE + "refuses_a_restore_by_name",
    ),
    Mutant(
        "serve an attempt that a restored one continues",
        "core/restoring.py",
        "return attempt if attempt is not None and attempt > episode.attempt else None",
        "return None",
        STORY + "restore]",
    ),
    Mutant(
        "free a restored episode that has started",
        "core/machine.py",
        "            self._state.restored.started(episode)",
        "            pass",
        STORY + "restore]",
    ),
    Mutant(
        "any number of calls may wait",
        "core/gate.py",
        "if waits and self._waiting >= self._max_waiting:",
        "if False:",
        CORE + "test_gate.py::max_waiting",
    ),
    Mutant(
        "run the same work twice",
        "core/gate.py",
        "if key is not None and key in self._keys:",
        "if False:",
        GATED + "repeated_run",
    ),
    Mutant(
        "a judge's call waits",
        "core/gate.py",
        "waits = self.closed and episode is not None",
        "waits = self.closed",
        ADMISSION + "untagged_call_passes",
    ),
    Mutant(
        "a parked execution slips past the next checkpoint",
        "core/gate.py",
        "        if self.closed:\n            return False\n        self._unparked(call)",
        "        self._unparked(call)",
        STORY + "steps",
    ),
    Mutant(
        "a replay step blocks",
        "core/steps.py",
        "(StepState.RUNNING, StepState.WAIT_STEP)",
        "(StepState.RUNNING, StepState.WAIT_STEP, StepState.REPLAY_STEP)",
        ADMISSION + "replay_step_in_flight",
    ),
    Mutant(
        "exempt from every later checkpoint",
        "core/gate.py",
        "            call.steps.exempt = False",
        "            pass",
        CORE + "test_gate.py::exempt_execution_blocks_again",
    ),
    Mutant(
        "any bearer will do",
        "http/endpoint.py",
        'if not matches or scheme.lower() != "bearer":',
        'if scheme.lower() != "bearer":',
        ROUTES + "missing_or_wrong_bearer",
    ),
    Mutant(
        "read a body of any size",
        "http/endpoint.py",
        "        if len(body) > max_bytes:",
        "        if False:",
        ROUTES + "malformed_or_oversized",
    ),
    Mutant(
        "believe the sender's clock to be ours",
        "runtime/shell.py",
        "(wall_now if sent_at is None else sent_at)",
        "wall_now",
        ROUTES + "senders_clock",
    ),
    Mutant(
        "a deadline without a cap",
        "runtime/shell.py",
        "budget_s = min(budget_s, self.settings.max_budget_seconds)",
        "pass",
        ROUTES + "far_deadline",
    ),
    Mutant(
        "write anywhere",
        "runtime/shell.py",
        "            self.settings.check_place(request.checkpoint_dir)",
        "            pass",
        ROUTES + "permitted_roots",
    ),
    Mutant(
        "drop a clean-up whose client has gone",
        "http/admission.py",
        "watch = None if route.is_cleanup else call.watch()",
        "watch = call.watch()",
        GATED + "waiting_clean_up",
    ),
    Mutant(
        "send a finished reply during a checkpoint",
        "http/served.py",
        "route.holds_reply or route.replays",
        "route.replays",
        GATED + "finished_reply_is_held",
    ),
    Mutant(
        "print the token",
        "settings.py",
        'shown["control_auth_token"] = _HIDDEN',
        "pass",
        "tests/participant/test_settings.py::never_printed",
    ),
    Mutant(
        "begin a save without the scope that is needed",
        "core/checkpoint_rules.py",
        "        self._check_scope(request)\n",
        "",
        MACHINE + "where_a_scope_is_needed",
    ),
    Mutant(
        "ask for a scope once the save has begun",
        "core/checkpoint_rules.py",
        "        self._check_scope(request)\n        state.check_id(request)\n"
        "        state.committing.check_arguments(request)\n",
        "        state.check_id(request)\n        state.committing.check_arguments(request)\n"
        "        self._check_scope(request)\n",
        MACHINE + "where_a_scope_is_needed",
    ),
    Mutant(
        "let a call that was woken wait for ever, though it is retired",
        "runtime/execution.py",
        "            if self._refusal is not None:\n                raise self._refusal\n",
        "",
        ADMISSION + "woken_and_is_retired",
    ),
    Mutant(
        "cut a clean-up short",
        "http/admission.py",
        "stack.enter_context(execution.finishing())",
        "pass",
        GATED + "does_not_cut_it_short",
    ),
    Mutant(
        "admit a call whose body was cut",
        "http/admission.py",
        '            if message["type"] == "http.disconnect":\n',
        "            if False:\n",
        GATED + "body_is_cut",
    ),
    Mutant(
        "keep what was loaded for a restore that was given up",
        "runtime/jobs.py",
        "if effect.number in self._loads:",
        "if True:",
        JOBS + "leaves_no_records",
    ),
    Mutant(
        "look twice at what can be looked at once",
        "runtime/jobs.py",
        "_Taken(tuple(export.records), ",
        "_Taken(export.records, ",
        JOBS + "once_only",
    ),
    Mutant(
        "begin a write that cannot be called off yet",
        "runtime/jobs.py",
        "                self._saves[number].publication = publication\n",
        "",
        JOBS + "called_off_before",
    ),
    Mutant(
        "lose the episode in a redirect",
        "http/rollout_prefix.py",
        "prefixed(target.path.removeprefix(root), episode)",
        "target.path.removeprefix(root)",
        "tests/participant/http/test_rollout_prefix.py::redirect_keeps",
    ),
    Mutant(
        "look for the prefix where the app is not mounted",
        "http/rollout_prefix.py",
        "split_prefix(route_path(scope))",
        'split_prefix(scope["path"])',
        "tests/participant/http/test_rollout_prefix.py::mounted_at",
    ),
    Mutant(
        "install half a participant",
        "install.py",
        "    check_mountable(app)\n",
        "",
        "tests/participant/http/test_mount.py::takes_none",
    ),
    Mutant(
        "let go of a thread that is retired",
        "runtime/execution.py",
        "if not self._shields and not self.is_in_thread():",
        "if not self._shields:",
        "tests/participant/http/test_served.py::thread_carries_out",
    ),
]
