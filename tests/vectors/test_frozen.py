"""No vector of version 1 ever changes, and the generator makes what is stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.vectors import generate, mini_reader
from tests.vectors.cases import FIXTURES, HOSTILE, VECTORS, case_folders


def contents(tree: Path) -> dict[str, bytes | str]:
    """Every file by name; of a link its target."""
    return {
        str(path.relative_to(tree)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fixtures")
    generate.generate(folder)
    return folder


def test_no_file_of_version_1_has_changed() -> None:
    assert generate.checksums(VECTORS) == (VECTORS / generate.SUMS).read_text()


@pytest.mark.parametrize("tree", [VECTORS, HOSTILE], ids=["vectors", "hostile"])
def test_the_generator_makes_what_is_stored(made: Path, tree: Path) -> None:
    new, stored = contents(made / tree.relative_to(FIXTURES)), contents(tree)
    assert new.keys() == stored.keys()
    if (VECTORS / "ZSTD_VERSION").read_text() == generate.zstd_version() + "\n":
        assert new == stored


def test_what_the_generator_makes_reads_the_same_whatever_compressed_it(made: Path) -> None:
    for folder in case_folders(VECTORS):
        if "error" not in json.loads((folder / "expected.json").read_text()):
            again = made / folder.relative_to(FIXTURES)
            assert repr(mini_reader.read(again)) == repr(mini_reader.read(folder))
