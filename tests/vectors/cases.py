"""Where the cases lie."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.tools import ROOT

__all__ = ["FIXTURES", "HOSTILE", "VECTORS", "case_folders"]

FIXTURES: Final = ROOT / "fixtures"
VECTORS: Final = FIXTURES / "vectors/v1"
HOSTILE: Final = FIXTURES / "hostile"


def case_folders(tree: Path) -> list[Path]:
    """The folders of the cases, sorted."""
    return sorted(path for path in tree.iterdir() if path.is_dir())
