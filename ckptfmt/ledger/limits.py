"""Every number that ``docs/ledger.md`` states.  Sizes are bytes."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ENTRY_SCHEMA_VERSION",
    "FINGERPRINT_VERSION",
    "INDEX_TAIL_BYTES",
    "INDEX_TAIL_DIVISOR",
    "LOCK_STRIPES",
    "MAX_BATCH_KEYS",
    "MAX_CALL_ID_BYTES",
    "MAX_FINDINGS",
    "MAX_LINE_BYTES",
    "MAX_STATE_BYTES",
    "SWEEP_AGE_S",
]

ENTRY_SCHEMA_VERSION: Final = 5
FINGERPRINT_VERSION: Final = 3

LOCK_STRIPES: Final = 64

# The index is written anew once the lines behind it exceed both of these.
INDEX_TAIL_BYTES: Final = 64 << 10
INDEX_TAIL_DIVISOR: Final = 4

MAX_LINE_BYTES: Final = 256 << 20
MAX_STATE_BYTES: Final = 256 << 20
MAX_CALL_ID_BYTES: Final = 1024
MAX_BATCH_KEYS: Final = 4096

# What is wrong with a file of millions of bad lines must not fill the memory.
MAX_FINDINGS: Final = 1000

SWEEP_AGE_S: Final = 7 * 24 * 3600
