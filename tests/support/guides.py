"""The programs that a guide shows."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["write_pages"]

_BLOCK = re.compile(r"^`(\w+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def write_pages(guide: str, folder: Path) -> None:
    """Write every file that the guide shows into ``folder``."""
    for name, code in _BLOCK.findall(guide):
        (folder / name).write_text(code, encoding="utf-8")
