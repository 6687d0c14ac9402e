"""The rules of the house as functions from a module to what is wrong with it.

Each yields ``path:line: message`` lines, so that a rule can be shown to fail on a
module that nobody wrote.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from tests.house.source import Module

__all__ = [
    "ONLY_IN",
    "banned_calls",
    "banned_imports",
    "import_direction",
    "long_parts",
    "misplaced_imports",
    "public_names",
    "undocumented",
]

MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 70

# Third-party package -> the only places of ours that import it, each with one reason:
# what can be exchanged is exchanged in one place, and what is slow to import or optional
# is paid for by those who use it.
ONLY_IN = {
    "aiohttp": ("participant/http/",),
    "fsspec": ("ckptfmt/store/",),
    "hypothesis": ("ckptfmt/testing/", "participant/testing/"),
    "opentelemetry": ("participant/telemetry.py",),
    "pytest": ("ckptfmt/testing/", "participant/testing/"),
    "rich": ("inspector/output/", "inspector/tui/"),
    "s3fs": ("ckptfmt/store/",),
    "starlette": ("participant/http/",),
    "textual": ("inspector/tui/",),
    "typer": ("inspector/",),
    "uvicorn": ("participant/http/",),
    "zstandard": ("ckptfmt/stream/codec.py",),
}

# Where participant reaches into the format; everyone may name things by ckptfmt.identity.
_FORMAT_USERS = (
    "participant/coordination/publish",
    "participant/roles/",
    "participant/runtime/bounded_io",
    "participant/runtime/saving",
)

# The core decides without waiting, asking or drawing: `now` is an argument, I/O is an effect.
_NOT_IN_CORE = (
    "aiohttp", "asyncio", "concurrent", "datetime", "os", "pathlib", "random", "secrets",
    "socket", "starlette", "subprocess", "threading", "time", "uuid",
)  # fmt: skip

# They run or build what data names.
_EXECUTING_MODULES = ("cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve")
_EXECUTING_CALLS = ("__import__", "compile", "eval", "exec")


def _under(name: str, *prefixes: str) -> bool:
    """Whether a dotted name is one of ``prefixes`` or lies within one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def misplaced_imports(module: Module) -> Iterator[str]:
    """Third-party packages outside their place."""
    for line, name in module.imports():
        places = ONLY_IN.get(name.split(".")[0])
        if places and not module.path.startswith(places):
            yield f"{module.path}:{line}: {name} is imported only in {' and '.join(places)}"


def import_direction(module: Module) -> Iterator[str]:
    """Our own packages against the direction that CONTRIBUTING.md draws."""
    package = module.path.split("/")[0]
    for line, name in module.imports():
        if reason := _against(module.path, package, name):
            yield f"{module.path}:{line}: {reason} does not import {name}"


def _against(path: str, package: str, name: str) -> str | None:
    ours = next((p for p in ("ckptfmt", "participant", "inspector") if _under(name, p)), None)
    if ours not in (None, "ckptfmt", package):
        return package
    if _under(name, "ckptfmt.testing", "participant.testing") and "/testing/" not in path:
        return "what ships outside testing"
    if (
        path == "ckptfmt/identity.py"
        and ours
        and not _under(name, "ckptfmt.errors", "ckptfmt.wire")
    ):
        return "ckptfmt.identity"
    if package != "participant":
        return None
    if path.startswith("participant/core/"):
        core = ours is None or _under(name, "ckptfmt.identity", "participant.core")
        return None if core and not _under(name, *_NOT_IN_CORE) else "participant.core"
    if ours == "ckptfmt" and not _under(name, "ckptfmt.identity"):
        return None if path.startswith(_FORMAT_USERS) else "this part of participant"
    return None


def banned_imports(module: Module) -> Iterator[str]:
    """Modules that run what data names."""
    for line, name in module.imports():
        if _under(name, *_EXECUTING_MODULES):
            yield f"{module.path}:{line}: {name} executes what it reads"


def banned_calls(module: Module) -> Iterator[str]:
    """Calls that run what data names, and ``print`` in a library."""
    library = not module.path.startswith("inspector/")
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        where = f"{module.path}:{node.lineno}: {called}"
        if called in _EXECUTING_CALLS:
            yield f"{where} executes what it is given"
        elif called.split(".")[-1] == "import_module" and not _is_literal(node.args[:1]):
            yield f"{where} takes its module's name from data"
        elif called == "print" and library:
            yield f"{where} writes to a terminal that is not this package's"


def _is_literal(arguments: list[ast.expr]) -> bool:
    return all(isinstance(a, ast.Constant) for a in arguments) and bool(arguments)


def long_parts(module: Module) -> Iterator[str]:
    """A module past 600 lines, a function past 70."""
    lines = module.text.count("\n")
    if lines > MAX_MODULE_LINES:
        yield f"{module.path}:1: {lines} lines, at most {MAX_MODULE_LINES}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield (
                    f"{module.path}:{node.lineno}: {node.name} has {length} lines, "
                    f"at most {MAX_FUNCTION_LINES}"
                )


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, with those under ``if`` and ``try``."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            handlers = [h.body for h in getattr(node, "handlers", [])]
            for part in itertools.chain((node.body, node.orelse), handlers):
                yield from _top_level(part)


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    named = itertools.chain.from_iterable(ast.walk(target) for target in targets)
    return [n.id for n in named if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def public_names(module: Module) -> Iterator[str]:
    """An ``__all__`` that is missing or differs from what the module defines.

    A name that the module imports may be in ``__all__``; a name that it defines
    without an underscore must be.  Ruff keeps the order.  A package whose
    ``__init__`` holds a docstring only needs none.
    """
    statements = list(_top_level(module.tree.body))
    if module.path.endswith("__main__.py") or len(statements) == 1:
        return
    defined = {name for node in statements for name in _bound(node)}
    imported = {
        alias.asname or alias.name
        for node in statements
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    if "__all__" not in defined:
        yield f"{module.path}:1: no __all__"
        return
    listed = _all_of(module.tree)
    if len(listed) != len(set(listed)):
        yield f"{module.path}:1: __all__ names something twice"
    for name in sorted({n for n in defined if not n.startswith("_")} - set(listed)):
        yield f"{module.path}:1: {name} is public by its name, but not in __all__"
    for name in sorted(set(listed) - defined - imported):
        yield f"{module.path}:1: {name} is in __all__, but neither defined nor imported"


def _all_of(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if "__all__" in _bound(node) and isinstance(node, ast.Assign | ast.AnnAssign):
            return [] if node.value is None else list(ast.literal_eval(node.value))
    return []


def undocumented(module: Module) -> Iterator[str]:
    """A module, or a class or function in ``__all__``, without a docstring."""
    if not ast.get_docstring(module.tree):
        yield f"{module.path}:1: no docstring"
    listed = set(_all_of(module.tree))
    for node in _top_level(module.tree.body):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name in listed
            and not ast.get_docstring(node)
        ):
            yield f"{module.path}:{node.lineno}: {node.name} is public and has no docstring"
