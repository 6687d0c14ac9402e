"""What lies where: the top level, the tests' folders, words that stay out, the lock."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.house.source import PACKAGES, python_files, tracked_files
from tests.support.tools import ROOT

TOP_LEVEL = {
    ".ci", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md",
    "benchmarks", "ckptfmt", "docs", "examples", "fixtures", "inspector", "participant",
    "pyproject.toml", "requirements.lock", "tests",
}  # fmt: skip

# Folders of tests that mirror no package; tests/README.md says what each is for.
KINDS = {
    "benchmarks", "contract", "faults", "fuzz", "house", "interop", "mutants", "process",
    "scenarios", "stateful", "support", "vectors",
}  # fmt: skip

# Written in two halves, so that this file does not hold them.  A registry's host in a lock
# binds every machine to it; a path of one machine means nothing on another.
UNWANTED = ["".join(halves) for halves in (
    ("pypi", ".org"), ("files.python", "hosted"), ("npm", "js"), ("/wo", "rk/"),
)]  # fmt: skip


def test_the_top_level_holds_only_what_belongs_there() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked_files()} - TOP_LEVEL == set()


def test_every_folder_of_tests_mirrors_the_source_or_is_a_kind_of_its_own() -> None:
    strays = set()
    for module in python_files():
        top, *folders, _ = module.path.split("/")
        if top != "tests" or not folders or folders[0] in KINDS:
            continue
        if folders[0] not in PACKAGES or not ROOT.joinpath(*folders).exists():
            strays.add(module.path)
    assert strays == set()


def test_no_folder_of_tests_is_a_package_that_could_shadow_one_of_ours() -> None:
    inits = {m.path for m in python_files() if m.path.endswith("/__init__.py")}
    assert {path for path in inits if path.startswith("tests/")} == {"tests/__init__.py"}


def test_every_package_ships_its_types() -> None:
    assert [p for p in PACKAGES if not (ROOT / p / "py.typed").is_file()] == []


@pytest.mark.parametrize("word", UNWANTED)
def test_no_file_names(word: str) -> None:
    holders = [path for path in tracked_files() if word.encode() in path.read_bytes()]
    assert holders == []


def test_the_lock_pins_every_dependency_by_version_and_hash() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(r for extra in project["project"]["optional-dependencies"].values() for r in extra),
        *(r for group in project["dependency-groups"].values() for r in group),
    ]
    entries = re.findall(
        r"^([a-z0-9-]+)==\S+.*\\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
        (ROOT / "requirements.lock").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    pinned = {name for name, _ in entries}
    assert {re.split(r"[<>=!~\[; ]", r, maxsplit=1)[0] for r in wanted} - pinned == set()
