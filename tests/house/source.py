"""The project's own files as the house tests read them: paths, syntax trees, imports."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.tools import ROOT

__all__ = ["PACKAGES", "Module", "modules", "python_files", "tracked_files"]

PACKAGES = ("ckptfmt", "participant", "inspector")


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file: ``path`` from the project's root, with slashes, and its tree."""

    path: str
    text: str
    tree: ast.Module

    @classmethod
    def parse(cls, path: str, text: str) -> Module:
        """The module that ``text`` would be at ``path``."""
        return cls(path, text, ast.parse(text, path))

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and dotted name of every import, wherever in the file it stands.

        ``from a import b`` gives ``a.b``: whether ``b`` is a module or not, a rule
        about ``a`` or ``a.b`` sees it.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@cache
def _ignored() -> frozenset[str]:
    return frozenset(line.strip("/") for line in (ROOT / ".gitignore").read_text().split())


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file of the project, without links and what ``.gitignore`` names."""
    found: list[Path] = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(set(folders) - _ignored() - {".git"})
        found.extend(Path(folder, name) for name in sorted(names))
    left_out = _ignored() | {".git"}
    return tuple(path for path in found if path.name not in left_out and not path.is_symlink())


@cache
def python_files() -> tuple[Module, ...]:
    """Every Python file of the project, tests included."""
    return tuple(
        Module.parse(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in tracked_files()
        if path.suffix == ".py"
    )


@cache
def modules() -> tuple[Module, ...]:
    """The modules that the distribution ships."""
    return tuple(m for m in python_files() if m.path.split("/")[0] in PACKAGES)
