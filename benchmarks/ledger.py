"""Capture ledgers: append, begin and put, freeze, batch retire, import, scan.

Ratios are taken side by side: each put alternates with a bare ``write`` and ``fsync`` of
the same bytes to one open file, so that a busy disk slows both.

    python benchmarks/ledger.py [--puts 10000] [--tokens 500] [--dir DIR]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ckptfmt.ledger.calls import list_rollouts
from ckptfmt.ledger.entry import TokenEntry
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger.row import row_line
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.ledger.token_store import TokenStore
from ckptfmt.ledger.verify import verify_directory
from ckptfmt.rules import Finding

RETIRED = 4096
IMPORTED = 1000
ROWS = 50
SCANNED = 10_000


def main() -> None:
    """Run everything in a directory of its own, and print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--puts", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="ledger-bench-", dir=options.dir))
    try:
        measure_append(root / "append", options.puts, options.tokens)
        measure_begin_and_put(root / "begin", min(options.puts, 3000), options.tokens)
        measure_retire(root / "retire")
        measure_import(root / "import")
        measure_scan(root / "scan")
    finally:
        shutil.rmtree(root)


def say(what: str, text: str) -> None:
    """One line of the table."""
    sys.stdout.write(f"| {what} | {text} |\n")
    sys.stdout.flush()


def timed(act: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def entry(key: str, number: int, tokens: int) -> TokenEntry:
    """An entry of so many tokens, a fifth of them generated."""
    rng = random.Random(number)
    generated = tokens // 5
    return TokenEntry(
        rollout_id=key,
        model_call_id=f"call-{number:06}",
        model="policy",
        prompt_token_ids=[rng.randrange(150_000) for _ in range(tokens - generated)],
        generation_token_ids=[rng.randrange(150_000) for _ in range(generated)],
        generation_log_probs=[-rng.random() for _ in range(generated)],
        output_items=[{"type": "message", "role": "assistant", "content": "word " * 40}],
        token_item_index=0,
        parent_resolution="root",
    )


class Bare:
    """A loop of ``write`` and ``fsync`` on one open file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def append(self, data: bytes) -> None:
        """Write and sync."""
        os.write(self._fd, data)
        os.fsync(self._fd)


def measure_append(root: Path, puts: int, tokens: int) -> None:
    """Put against a bare loop, and the cost of late puts against that of early ones."""
    root.mkdir()
    bare = Bare(root.parent / "bare-append")
    bare_s: list[float] = []
    put_s: list[float] = []
    with TokenStore(root) as store:
        for number in range(puts):
            # Made just before, as in a server: neither loop finds the entry cold.
            item = entry("r", number, tokens)
            line = item.line() + b"\n"
            bare_s.append(timed(lambda data=line: bare.append(data)))  # type: ignore[misc]
            put_s.append(timed(lambda made=item: store.put(made)))  # type: ignore[misc]
        freeze_s = timed(lambda: store.freeze("r"))
    early, late = put_s[10:110], put_s[-100:]
    bare_early, bare_late = bare_s[10:110], bare_s[-100:]
    drift = statistics.median(bare_late) / statistics.median(bare_early)
    growth = statistics.median(late) / statistics.median(early)
    ratio = statistics.median(bare_s) / statistics.median(put_s)
    say(f"put of {len(line):,} bytes, {puts:,} times", spread(put_s))
    say("bare write + fsync, alternating", spread(bare_s))
    say("put alone, relative to the bare loop", f"{ratio:.2f}")
    say(
        f"puts {puts - 100:,} to {puts:,} against puts 10 to 110",
        f"{growth:.2f} times (the bare loop: {drift:.2f})",
    )
    say(f"freeze of {puts:,} entries", f"{1e3 * freeze_s:.1f} ms")


def measure_begin_and_put(root: Path, puts: int, tokens: int) -> None:
    """Begin and put together against one bare write and fsync."""
    root.mkdir()
    bare = Bare(root.parent / "bare-begin")
    bare_s: list[float] = []
    both_s: list[float] = []

    with TokenStore(root) as store:

        def both(item: TokenEntry) -> None:
            store.begin_call("r", item.model_call_id)
            store.put(item)

        for number in range(puts):
            item = entry("r", number, tokens)
            line = item.line() + b"\n"
            bare_s.append(timed(lambda data=line: bare.append(data)))  # type: ignore[misc]
            both_s.append(timed(lambda made=item: both(made)))  # type: ignore[misc]
    ratio = statistics.median(bare_s) / statistics.median(both_s)
    say("begin + put", spread(both_s))
    say("begin + put, relative to the bare loop", f"{ratio:.2f}")


def spread(seconds: list[float]) -> str:
    """Median and 99th percentile."""
    ordered = sorted(seconds)
    p99 = ordered[int(0.99 * (len(ordered) - 1))]
    return f"median {1e6 * statistics.median(ordered):.0f} µs, p99 {1e6 * p99:.0f} µs"


def measure_retire(root: Path) -> None:
    """One batch of both families."""
    keys = [f"rollout-{number}" for number in range(RETIRED)]
    with TokenStore(root) as tokens, StagingLedger(root) as staging:
        fill_unsynced(root, keys)
        seconds = timed(lambda: tokens.retire(keys))
        say(f"retire of {RETIRED:,} ledgers of complete records", f"{seconds:.2f} s")
        seconds = timed(lambda: staging.retire(keys))
        say(f"retire of {RETIRED:,} external-staging ledgers", f"{seconds:.2f} s")
        seconds = timed(lambda: tokens.delete(keys))
        say(f"delete of {RETIRED:,} fences", f"{seconds:.2f} s")


def fill_unsynced(root: Path, keys: list[str]) -> None:
    """Ledgers of both families with one record each."""
    row = row_line(row_members(0, 0)) + b"\n"
    for number, key in enumerate(keys):
        (root / f"{key}.tokens.jsonl").write_bytes(entry(key, number, 100).line() + b"\n")
        (root / f"{key}.tokens.intents").write_bytes(f"call-{number:06}\n".encode())
        (root / f"{key}.lineage.jsonl").write_bytes(row)


def row_members(rollout: int, number: int) -> dict[str, object]:
    """A row of a chain."""
    return {
        "model_call_id": f"call-{number:06}",
        "fingerprint": f"{number:064x}",
        "context_len": 2 * number + 1,
        "context_digest": f"{number:064x}",
        "digest": f"{number:064x}",
        "parent_call_id": f"call-{number - 1:06}" if number else None,
        "staging_key": f"rollout-{rollout}/call-{number:06}",
        "weight_version": 7,
        "prev_len": 500 * number,
        "delta_len": 500,
        "cum_len": 500 * (number + 1),
        "staging_digest": f"{number:064x}",
        "extras_digest": f"{number:064x}",
        "mode": "token_in" if number else "text",
        "admitted_at": 1_700_000_000.5,
        "staging_chain": [],
        "chain_hash": f"{number:064x}",
        "cumulative_hash": f"{number:064x}",
        "response_id": f"resp-{number}",
        "output_fingerprint": None,
        "continuation_fingerprint": f"{number:064x}",
        "fingerprint_version": 3,
    }


def measure_import(root: Path) -> None:
    """One batch, into an empty directory and again over what is there."""
    rows = {
        f"rollout-{rollout}-a1": [row_members(rollout, number) for number in range(ROWS)]
        for rollout in range(IMPORTED)
    }
    with StagingLedger(root) as ledger:
        for what in ("import", "the same import again"):
            seconds = timed(lambda: ledger.import_rows_many(rows))
            say(f"{what} of {IMPORTED:,} ledgers of {ROWS} rows", f"{seconds:.2f} s")


def measure_scan(root: Path) -> None:
    """List and verify a large directory."""
    root.mkdir()
    fill_unsynced(root, [f"rollout-{number}" for number in range(SCANNED)])
    reader = LedgerReader(root)
    listing_s = timed(lambda: sum(1 for _ in list_rollouts(reader)))
    say(f"list of {SCANNED:,} rollouts", f"{listing_s:.2f} s")
    found: list[Finding] = []
    verify_s = timed(lambda: found.extend(verify_directory(reader)))
    assert not found, found[0]
    say(f"verification of {SCANNED:,} rollouts", f"{verify_s:.2f} s")


if __name__ == "__main__":
    main()
