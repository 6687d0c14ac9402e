"""The processes of the job: started on loopback, and killed by their ids."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from examples.job.setup import KINDS, Setup

__all__ = ["PROGRAMS", "ProcessDiedError", "Processes", "start"]

PROGRAMS: Final[Mapping[str, str]] = {kind: f"examples.job.{kind}" for kind in KINDS}
"""The module of each server."""

_ROOT: Final = Path(__file__).resolve().parents[2]
_END_TIMEOUT_S: Final = 30.0


class ProcessDiedError(Exception):
    """A process has ended that nobody killed."""


class Processes:
    """The servers of a job, and whatever else was started beside them.

    ``setup`` is what they were told.  A server can be called at once: until it has started,
    a call waits at its socket.
    """

    def __init__(self, setup: Setup, programs: Mapping[str, str] = PROGRAMS) -> None:
        self.setup = setup
        self._programs = programs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0

    def __getitem__(self, name: str) -> int:
        """The id of a process."""
        return self._running[name].pid

    def replace(self, kind: str) -> None:
        """Start a server where one was killed, at the same address."""
        with _listener(int(self.setup.addresses[kind].rpartition(":")[2])) as listener:
            self._start_server(kind, listener)

    def start_controller(self, *arguments: str) -> None:
        """Start a process of the controller; its arguments are those of its command line."""
        self.start("controller", ["-m", "examples.job.controller", *arguments])

    def start(self, name: str, arguments: list[str], listener: int | None = None) -> None:
        """Start Python with ``arguments``; what it prints goes to the folder ``logs``."""
        assert name not in self._running, f"{name} is running"
        self._started += 1
        log = self.setup.folder / "logs" / f"{self._started:02}-{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        changes = {} if listener is None else {"listener": listener}
        with log.open("wb") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=_ROOT,
                env=self.setup.environment(**changes),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=() if listener is None else (listener,),
            )

    def _start_server(self, kind: str, listener: socket.socket) -> None:
        self.start(kind, ["-m", self._programs[kind]], listener.fileno())

    def kill(self, *names: str) -> list[int]:
        """SIGKILL processes, all of them by default, and wait until they have ended; their ids."""
        killed = {name: self._running[name] for name in names or tuple(self._running)}
        # First all of them, then the waiting: none sees another one gone for long.
        for process in killed.values():
            process.send_signal(signal.SIGKILL)
        for name, process in killed.items():
            process.wait(_END_TIMEOUT_S)
            self._close(name)
        return [process.pid for process in killed.values()]

    def ended(self, name: str) -> bool:
        """Whether a process has come to its good end."""
        process = self._running.get(name)
        if process is not None and process.poll() == 0:
            self._close(name)
        return name not in self._running

    def was_killed(self, name: str) -> bool:
        """Whether a process has died by a signal that it was sent from elsewhere."""
        process = self._running.get(name)
        if process is not None and process.poll() == -signal.SIGKILL:
            self._close(name)
        return name not in self._running

    def check(self) -> None:
        """Notice a process that came to a bad end.

        Raises:
            ProcessDiedError: there is one; its log is quoted.
        """
        for name, process in self._running.items():
            if process.poll() not in (None, 0):
                log = self._tail(name)
                raise ProcessDiedError(f"{name} ended with status {process.poll()}: {log}")

    def _close(self, name: str) -> None:
        stdin = self._running.pop(name).stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.close()

    def _tail(self, name: str) -> str:
        logs = sorted((self.setup.folder / "logs").glob(f"*-{name}.log"))
        return logs[-1].read_text(errors="replace")[-2000:] if logs else ""


@contextlib.contextmanager
def start(
    folder: Path, *, lease_grace_s: float = 600.0, programs: Mapping[str, str] = PROGRAMS
) -> Iterator[Processes]:
    """Fresh processes of the servers, killed at the end.

    What outlives them stands in ``folder``; processes started there later find it.
    """
    with contextlib.ExitStack() as stack:
        listeners = {kind: stack.enter_context(_listener()) for kind in programs}
        addresses = {
            kind: f"http://127.0.0.1:{listener.getsockname()[1]}"
            for kind, listener in listeners.items()
        }
        setup = Setup(folder, _token(folder), addresses, lease_grace_s)
        processes = Processes(setup, programs)
        stack.callback(processes.kill)
        for kind, listener in listeners.items():
            processes._start_server(kind, listener)
            # Only the server holds it: once that is dead, connections are refused.
            listener.close()
        yield processes


@contextlib.contextmanager
def _listener(port: int = 0) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", port), backlog=1024) as listener:
        listener.set_inheritable(True)
        yield listener


def _token(folder: Path) -> str:
    """The token of the job, which also signs its cookies: the same after a restart."""
    file = folder / "token"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(32))
    return file.read_text()
