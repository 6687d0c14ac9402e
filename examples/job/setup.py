"""What every process of the job is told, and how a server of it is served."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette

import participant

__all__ = ["KINDS", "Journal", "Setup", "end_with_parent", "serve"]

KINDS: Final = ("resources", "model", "agent", "environment")
"""The kinds of servers, callees first."""

_VARIABLE: Final = "JOB_SETUP"


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process is told by whoever starts it.

    ``folder`` holds everything that outlives a process; ``addresses`` are the base URLs of
    the servers by kind; ``listener`` is the file descriptor of a server's own socket.
    """

    folder: Path
    token: str = field(repr=False)
    addresses: Mapping[str, str]
    lease_grace_s: float = 600.0
    listener: int = -1

    @classmethod
    def read(cls) -> Setup:
        """As it was handed to this process."""
        members = json.loads(os.environ[_VARIABLE])
        return cls(**{**members, "folder": Path(members["folder"])})

    def environment(self, **changes: Any) -> dict[str, str]:
        """The variables of a process that is told this, with ``changes``."""
        members = dataclasses.asdict(dataclasses.replace(self, **changes))
        return {**os.environ, _VARIABLE: json.dumps({**members, "folder": str(self.folder)})}

    @property
    def settings(self) -> participant.Settings:
        """The block ``checkpoint`` of each server."""
        return participant.Settings(
            enabled=True,
            control_auth_token=self.token,
            lease_grace_seconds=self.lease_grace_s,
            allowed_checkpoint_roots=(str(self.folder),),
        )


class Journal:
    """A file of JSON lines, each durable once it was added."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, **members: Any) -> None:
        """Append a line and have it on the disk; blocks."""
        os.write(self._fd, json.dumps(members).encode() + b"\n")
        os.fsync(self._fd)

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """The lines; one that a crash tore off at the end does not count."""
        if not path.exists():
            return []
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines()]


def serve(app: Starlette, setup: Setup) -> None:
    """Serve on the socket that was handed over, until killed or left alone."""
    end_with_parent()
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=setup.listener)])


def end_with_parent() -> None:
    """End this process once the one that started it is gone: then standard input ends."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
