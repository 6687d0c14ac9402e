"""The rules of the house: held by every module, and able to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.house import rules
from tests.house.source import Module, modules, python_files

Rule = Callable[[Module], Iterator[str]]

SHIPPED_RULES: list[Rule] = [
    rules.misplaced_imports,
    rules.import_direction,
    rules.banned_imports,
    rules.banned_calls,
    rules.public_names,
    rules.undocumented,
]


@pytest.mark.parametrize("rule", SHIPPED_RULES, ids=lambda rule: rule.__name__)
def test_every_shipped_module_keeps(rule: Rule) -> None:
    assert "\n".join(wrong for module in modules() for wrong in rule(module)) == ""


def test_no_module_and_no_function_is_too_long() -> None:
    wrong = (line for module in python_files() for line in rules.long_parts(module))
    assert "\n".join(wrong) == ""


BROKEN = [
    (rules.misplaced_imports, "ckptfmt/stream/reader.py", "import zstandard"),
    (rules.misplaced_imports, "ckptfmt/commit.py", "def f():\n    from fsspec import open"),
    (rules.misplaced_imports, "ckptfmt/store_local.py", "import fsspec.asyn"),
    (rules.misplaced_imports, "inspector/commands/ls.py", "from rich.table import Table"),
    (rules.misplaced_imports, "inspector/output/text.py", "import textual.app"),
    (rules.misplaced_imports, "participant/runtime/shell.py", "import aiohttp"),
    (rules.misplaced_imports, "participant/install.py", "from opentelemetry import trace"),
    (rules.misplaced_imports, "ckptfmt/verify.py", "import pytest"),
    (rules.import_direction, "ckptfmt/layout.py", "import participant.core"),
    (rules.import_direction, "ckptfmt/layout.py", "from inspector import cli"),
    (rules.import_direction, "inspector/query.py", "import participant"),
    (rules.import_direction, "participant/clock.py", "from ckptfmt import commit"),
    (rules.import_direction, "participant/runtime/steps.py", "import ckptfmt.store.local"),
    (rules.import_direction, "participant/core/lease.py", "import time"),
    (rules.import_direction, "participant/core/gate.py", "from concurrent import futures"),
    (rules.import_direction, "participant/core/gate.py", "from ckptfmt import wire"),
    (rules.import_direction, "participant/core/gate.py", "from participant import clock"),
    (rules.import_direction, "ckptfmt/identity.py", "from ckptfmt import layout"),
    (rules.import_direction, "inspector/cli.py", "from ckptfmt.testing import faulty"),
    (rules.banned_imports, "ckptfmt/payload.py", "from pickle import loads"),
    (rules.banned_imports, "inspector/cli.py", "import marshal"),
    (rules.banned_calls, "ckptfmt/payload.py", "eval(text)"),
    (rules.banned_calls, "ckptfmt/payload.py", "importlib.import_module(name)"),
    (rules.banned_calls, "participant/install.py", "print('started')"),
    (rules.long_parts, "ckptfmt/a.py", "\n" * 601),
    (rules.long_parts, "ckptfmt/a.py", "def f():\n" + "    x = 1\n" * 70),
    (rules.long_parts, "ckptfmt/a.py", "class C:\n  async def f():\n" + "    x = 1\n" * 70),
    (rules.public_names, "ckptfmt/a.py", "import re\nX = 1"),
    (rules.public_names, "ckptfmt/a.py", "__all__ = ['f']\ndef f(): ...\nif f:\n    X: int = 1"),
    (rules.public_names, "ckptfmt/a.py", "__all__ = ['f', 'g']\ndef f(): ..."),
    (rules.public_names, "ckptfmt/a.py", "__all__ = ['f', 'f']\ndef f(): ..."),
    (rules.undocumented, "ckptfmt/a.py", "__all__ = []"),
    (rules.undocumented, "ckptfmt/a.py", "'''A.'''\n__all__ = ['f']\ndef f(): ..."),
    (rules.undocumented, "ckptfmt/a.py", "'''A.'''\n__all__ = ['C']\nclass C:\n    x = 1"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN)
def test_a_rule_reports_what_breaks_it(rule: Rule, path: str, text: str) -> None:
    found = list(rule(Module.parse(path, text)))
    assert len(found) == 1
    assert found[0].startswith(f"{path}:")


KEPT = [
    (rules.misplaced_imports, "ckptfmt/stream/codec.py", "import zstandard"),
    (rules.misplaced_imports, "inspector/tui/app.py", "import textual, rich"),
    (rules.import_direction, "inspector/query.py", "from ckptfmt.verify import verify"),
    (rules.import_direction, "participant/clock.py", "import time, ckptfmt.identity"),
    (rules.import_direction, "participant/roles/agent.py", "from ckptfmt.record import Record"),
    (rules.import_direction, "participant/core/gate.py", "import enum, participant.core.lease"),
    (rules.banned_calls, "inspector/cli.py", "print('help')"),
    (rules.banned_calls, "ckptfmt/a.py", "import re\nre.compile('x')"),
    (rules.banned_calls, "inspector/cli.py", "import_module('inspector.tui')"),
    (rules.long_parts, "ckptfmt/a.py", "def f():\n" + "    x = 1\n" * 69),
    (rules.public_names, "ckptfmt/__init__.py", "'''Only a docstring.'''"),
    (rules.public_names, "ckptfmt/a.py", "from a import f\n__all__ = ['f']\n_x, _y = 1, 2"),
]


@pytest.mark.parametrize(("rule", "path", "text"), KEPT)
def test_a_rule_accepts_what_keeps_it(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Module.parse(path, text))) == []
