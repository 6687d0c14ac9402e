"""Mutations of the roles of resources and model servers, and of what tells them of calls."""

from __future__ import annotations

from tests.mutants.participant import Mutant

__all__ = ["MUTANTS"]

RESOURCES = "tests/participant/roles/test_resources.py::"
MODEL = "tests/participant/roles/test_model.py::"
CUT = "tests/participant/roles/test_ledger_cut.py::"
SERVED = "tests/participant/http/test_served.py::"
PINS = "tests/scenarios/test_ledger_pins.py::"

MUTANTS = [
    Mutant(
        "take an inherited declaration for the server's own",
        "roles/resources.py",
        'vars(type(self)).get("checkpoint_mode")',
        "type(self).checkpoint_mode",
        RESOURCES + "declared_nothing_itself",
    ),
    Mutant(
        "commit a server that declared nothing",
        "roles/resources.py",
        "        self.__check_declared()\n        wanted = {",
        "        wanted = {",
        RESOURCES + "declared_nothing_itself",
    ),
    Mutant(
        "bind a session whose seed failed",
        "roles/resources.py",
        "if not 200 <= status < 300 or suffix",
        "if suffix",
        RESOURCES + "failed_seed_leaves_nothing",
    ),
    Mutant(
        "leave what a failed seed had built",
        "roles/resources.py",
        "                session_id = named\n",
        "                session_id = None\n",
        RESOURCES + "failed_seed_leaves_nothing",
    ),
    Mutant(
        "let a tool make an empty session under an old cookie",
        "roles/resources.py",
        'if bound is None and self.__mode == "exported" and suffix not in (SEED, CLOSE):',
        "if False:",
        RESOURCES + "session_that_is_not_here",
    ),
    Mutant(
        "serve another episode's session",
        "roles/resources.py",
        "if bound not in (None, episode):",
        "if False:",
        RESOURCES + "only_its_own_episode",
    ),
    Mutant(
        "end a session on verify before the reply leaves",
        "roles/resources.py",
        '            GatedRoute(VERIFY, replays=self.__verify == "replay"),',
        "            GatedRoute(VERIFY),",
        RESOURCES + "verify_that_may_be_replayed",
    ),
    Mutant(
        "replay every verify",
        "roles/resources.py",
        'replays=self.__verify == "replay"',
        "replays=True",
        RESOURCES + "verify_in_flight_is_waited_for",
    ),
    Mutant(
        "leave the state of a session that has ended",
        "roles/resources.py",
        "session_id = self.__ended.pop(call, None)",
        "self.__sessions.end(self.__ended.pop(call, ''))\n        session_id = None",
        RESOURCES + "close_or_a_verify_ends",
    ),
    Mutant(
        "keep a session that is missing from the answer",
        "roles/resources.py",
        "                self.__sessions.end(session_id)\n        return Export(records)",
        "        return Export(records)",
        RESOURCES + "missing_from_the_answer",
    ),
    Mutant(
        "keep sessions of a restore that failed",
        "roles/resources.py",
        "                    await self.retire_session_state(session_id)\n"
        "                except Exception:",
        "                    pass\n                except Exception:",
        RESOURCES + "restore_that_one_session_fails",
    ),
    Mutant(
        "forget a session before its state is freed",
        "roles/resources.py",
        "        if self.__can_retire:\n            await self.retire_session_state(session_id)\n",
        "        self.__sessions.end(session_id)\n"
        "        if self.__can_retire:\n            await self.retire_session_state(session_id)\n",
        RESOURCES + "retire_frees_every_session",
    ),
    Mutant(
        "keep what was restored for an episode that starts over",
        "roles/resources.py",
        "if untouched != session_id:",
        "if False:",
        RESOURCES + "starts_over_gives_up",
    ),
    Mutant(
        "give up a restored session that is used",
        "roles/resources.py",
        "            self.__sessions.touch(session_id)",
        "            pass",
        RESOURCES + "starts_over_gives_up",
    ),
    Mutant(
        "gate the tools that somebody thought of",
        "roles/resources.py",
        "            _TOOLS,\n",
        "",
        RESOURCES + "tools_need_no_list",
    ),
    Mutant(
        "restore a state into a server without state",
        "roles/resources.py",
        'if self.__mode == "stateless":\n            raise',
        "if False:\n            raise",
        RESOURCES + "state_for_a_stateless_server",
    ),
    Mutant(
        "save the rows of undelivered calls",
        "roles/ledger_cut.py",
        'if row["model_call_id"] not in undelivered or',
        "if True or",
        MODEL + "undelivered_calls_are_left_out",
    ),
    Mutant(
        "leave out the row that a delivered call continues",
        "roles/ledger_cut.py",
        ' or row["model_call_id"] in ancestors',
        "",
        CUT + "delivered_call_continues",
    ),
    Mutant(
        "ask which calls are undelivered before ledgers are read",
        "roles/model.py",
        "        cut = await in_thread(read_cut, self._ledger, sorted(scope.episodes))\n"
        "        undelivered: dict[EpisodeId, set[str]] = {}\n"
        "        for call, ids in self._undelivered.items():\n"
        "            if call.episode is not None:\n"
        "                undelivered.setdefault(call.episode, set()).update(ids)\n",
        "        undelivered: dict[EpisodeId, set[str]] = {}\n"
        "        for call, ids in self._undelivered.items():\n"
        "            if call.episode is not None:\n"
        "                undelivered.setdefault(call.episode, set()).update(ids)\n"
        "        cut = await in_thread(read_cut, self._ledger, sorted(scope.episodes))\n",
        MODEL + "written_while_ledgers_are_read",
    ),
    Mutant(
        "take a call that has run for delivered",
        "roles/model.py",
        "            self._undelivered[call].add(model_call_id)",
        "            pass",
        MODEL + "undelivered_calls_are_left_out",
    ),
    Mutant(
        "commit every ledger that there is",
        "roles/model.py",
        "needs_scope = True",
        "needs_scope = False",
        MODEL + "null_scope_is_refused",
    ),
    Mutant(
        "pin every ledger in scope",
        "roles/ledger_cut.py",
        "[self.pins[record.episode_id] for record in records]",
        "list(self.pins.values())",
        CUT + "pins_are_of_the_ledgers",
    ),
    Mutant(
        "lose the pins on the way to storage",
        "runtime/jobs.py",
        "                save.export.ledger_pins,\n",
        "",
        PINS + "truncated_after_the_checkpoint",
    ),
    Mutant(
        "write no pin into the manifest",
        "runtime/saving.py",
        '                ledger_pins=(cast("LedgerPin", pin) for pin in order.ledger_pins),\n',
        "",
        "tests/participant/runtime/test_saving.py::pins_stand_in_the_manifest",
    ),
    Mutant(
        "leave the ledgers of continued attempts open",
        "roles/model.py",
        "            for keys in _batches(continued):\n                self._ledger.retire(keys)\n",
        "",
        MODEL + "undelivered_calls_are_left_out",
    ),
    Mutant(
        "leave an old ledger to an episode without a record",
        "roles/model.py",
        "{e.capture_key: () for e in sorted(episodes)}",
        "{}",
        "tests/participant/testing/test_model_contract.py::an_episode_without_a_record_is_cleared",
    ),
    Mutant(
        "fence the ledgers that a scope leaves out",
        "roles/model.py",
        "await in_thread(self._ledger.delete, keys)",
        "await in_thread(self._ledger.retire, keys)",
        MODEL + "second_checkpoint_carries",
    ),
    Mutant(
        "retire the ledger of the last attempt only",
        "roles/model.py",
        "attempts = range(first, episode.attempt + 1)",
        "attempts = [episode.attempt]",
        MODEL + "then_retires_every_attempt",
    ),
    Mutant(
        "retire a ledger that is still written to",
        "roles/ledger_threads.py",
        "        await asyncio.wait({work})\n",
        "        await asyncio.sleep(0)\n",
        MODEL + "row_that_is_being_written",
    ),
    Mutant(
        "leave a retired ledger to be a defect of the server",
        "roles/model.py",
        "        except RetiredError as error:\n",
        "        except ZeroDivisionError as error:\n",
        MODEL + "earlier_run_has_used",
    ),
    Mutant(
        "read ledgers on the event loop",
        "roles/ledger_threads.py",
        "asyncio.to_thread(function, *args, **kwargs)",
        "asyncio.sleep(0, function(*args, **kwargs))",
        MODEL + "status_answers",
    ),
    Mutant(
        "leave a failed import where it is",
        "roles/model.py",
        "                self._ledger.delete(keys)\n            raise",
        "                pass\n            raise",
        MODEL + "failed_import_is_undone",
    ),
    Mutant(
        "wait for generations",
        "http/served.py",
        "if self._call.route.replays:",
        "if False:",
        MODEL + "call_in_flight_is_not_waited_for",
    ),
    Mutant(
        "hold the replies of calls of no episode",
        "core/gate.py",
        "return self.closed and call.episode is not None",
        "return self.closed",
        MODEL + "calls_of_no_episode_pass",
    ),
    Mutant(
        "let a failure out while a checkpoint is open",
        "http/served.py",
        "                await reply.hold()\n                raise",
        "                raise",
        MODEL + "failure_is_an_answer",
    ),
    Mutant(
        "take calls within a call for the call",
        "http/admission.py",
        "            with _serving(None):\n",
        "            if True:\n",
        SERVED + "not_even_within_a_call",
    ),
    Mutant(
        "tell the hooks of a reply before it leaves",
        "http/served.py",
        "            await self.hold()\n            try:\n",
        "            try:\n",
        SERVED + "reply_is_held",
    ),
    Mutant(
        "keep the session of a seed whose reply broke off",
        "roles/resources.py",
        "            elif call.has_failed:\n",
        "            elif False:\n",
        RESOURCES + "reply_breaks_off",
    ),
    Mutant(
        "retire the session that a second seed did not replace",
        "roles/resources.py",
        "self.__sessions.episode_of(named) is None:\n                session_id = named",
        "True:\n                session_id = named",
        RESOURCES + "does_not_harm_the_session",
    ),
    Mutant(
        "keep what a late tool makes of a session that has ended",
        "roles/resources.py",
        "            session_id = entered  #",
        "            pass  #",
        RESOURCES + "outlasts_its_session",
    ),
]
