"""A checker of capture directories, written from docs/ledger.md with the standard library only.

It is slow and knows nothing of the package, so that what both say alike the document says.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["check_directory"]

Breach = tuple[str, str]

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ATTEMPT = re.compile(r"(.*)-a([1-9][0-9]*)", re.DOTALL)
SHA = re.compile(r"[0-9a-f]{64}")
ENDS = (
    "tokens.jsonl", "tokens.state.json", "tokens.intents", "tokens.incomplete", "tokens.lock",
    "lineage.jsonl", "lineage.retired",
)  # fmt: skip


def check_directory(root: Path) -> set[Breach]:
    """Rule and file (or key) of everything that is wrong."""
    found: set[Breach] = set()
    rollouts: dict[str, set[str]] = {}
    for path in root.iterdir():
        split = split_name(path.name) if path.is_file() and not path.is_symlink() else None
        if split:
            rollouts.setdefault(split[0], set()).add(split[1])
        elif re.fullmatch(r"\.ledger-tmp-[0-9a-f]{24}", path.name):
            found.add(("ledger-leftover", path.name))
        elif not re.fullmatch(r"\.ledger-lock-[0-9a-f]{2}", path.name):
            found.add(("ledger-stranger", path.name))
    for key, ends in rollouts.items():
        found |= set(check_rollout(root, key, ends))
        if any(
            rollout_of(other) == rollout_of(key) and attempt_of(other) > attempt_of(key)
            for other in rollouts
        ):
            state = read_state(root, key) or {}
            fenced = "lineage.retired" in ends or state.get("retired")
            if not fenced and not state.get("frozen"):
                found.add(("ledger-continued", key))
    return found


def split_name(name: str) -> tuple[str, str] | None:
    for end in ENDS:
        key = name.removesuffix("." + end)
        if key != name and KEY.fullmatch(key) and len(key) <= 200:
            return None if ATTEMPT.fullmatch(rollout_of(key)) else (key, end)
    return None


def rollout_of(key: str) -> str:
    match = ATTEMPT.fullmatch(key)
    return match[1] if match else key


def attempt_of(key: str) -> int:
    match = ATTEMPT.fullmatch(key)
    return int(match[2]) if match else 0


def check_rollout(root: Path, key: str, ends: set[str]) -> Iterator[Breach]:
    if ends == {"tokens.lock"}:
        yield "ledger-leftover", f"{key}.tokens.lock"
    if "lineage.retired" in ends:
        if "lineage.jsonl" in ends:
            yield "ledger-retired-rest", f"{key}.lineage.jsonl"
    elif "lineage.jsonl" in ends:
        yield from check_rows(root / f"{key}.lineage.jsonl")
    if not ends & set(ENDS[:4]):
        return
    state = read_state(root, key)
    if state is not None and state.get("retired"):
        for end in ("tokens.jsonl", "tokens.intents", "tokens.incomplete"):
            if end in ends:
                yield "ledger-retired-rest", f"{key}.{end}"
        return
    yield from check_tokens(root, key, state)


# Lines


def split_lines(data: bytes) -> Iterator[tuple[int, bytes, bool]]:
    offset = 0
    for piece in data.split(b"\n"):
        ended = offset + len(piece) < len(data)
        if piece.strip():
            yield offset, piece, ended
        offset += len(piece) + 1


def objects(data: bytes) -> Iterator[tuple[int, bytes, dict[str, Any] | None, str | None]]:
    for offset, piece, ended in split_lines(data):
        try:
            value = json.loads(piece.decode(), parse_constant=refuse)
        except (ValueError, UnicodeDecodeError):
            value = None
        if not isinstance(value, dict):
            yield offset, piece, None, "ledger-line" if ended else "ledger-torn"
        else:
            yield offset, piece, value, None if ended else "ledger-newline"


def refuse(text: str) -> None:
    raise ValueError(text)


def read(root: Path, name: str) -> bytes:
    path = root / name
    return path.read_bytes() if path.is_file() else b""


# Types


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def is_text(value: Any) -> bool:
    return type(value) is str


def is_sha(value: Any) -> bool:
    return is_text(value) and SHA.fullmatch(value) is not None


def is_call_id(value: Any) -> bool:
    return (
        is_text(value)
        and value != ""
        and not value.startswith("-")
        and value == value.strip()
        and value.isprintable()
        and len(value.encode()) <= 1024
    )


def or_null(test: Any) -> Any:
    return lambda value: value is None or test(value)


def array_of(test: Any) -> Any:
    return lambda value: isinstance(value, list) and all(map(test, value))


def is_flag_or_int(value: Any) -> bool:
    return value is None or type(value) in (bool, int)


# Complete records

REQUIRED = object()
ENTRY: dict[str, tuple[Any, Any]] = {
    "rollout_id": (is_text, REQUIRED),
    "model_call_id": (is_call_id, REQUIRED),
    "model": (is_text, ""),
    "prompt_token_ids": (array_of(is_count), REQUIRED),
    "generation_token_ids": (array_of(is_count), REQUIRED),
    "generation_log_probs": (array_of(is_number), REQUIRED),
    "output_items": (array_of(lambda item: isinstance(item, dict)), []),
    "token_item_index": (or_null(lambda value: type(value) is int), None),
    "created_at": (is_number, 0),
    "parent_call_id": (or_null(is_text), None),
    "cum_len": (or_null(is_count), None),
    "digest": (or_null(is_text), None),
    "parent_resolution": (
        lambda value: value is None or value in ("root", "resolved", "unresolved"),
        None,
    ),
    "parent_resolution_reason": (is_text, ""),
    "continuation_fingerprint": (is_text, ""),
    "continuation_context_len": (is_count, 0),
    "continuation_context_digest": (is_text, ""),
    "fingerprint_version": (or_null(lambda value: type(value) is int), None),
    "prompt_is_delta": (lambda value: type(value) is bool, False),
    "prefix_requested": (is_flag_or_int, None),
    "prefix_supplied": (is_flag_or_int, None),
}


def full_entry(value: dict[str, Any]) -> dict[str, Any] | None:
    entry = {name: value.get(name, default) for name, (_, default) in ENTRY.items()}
    if any(not test(entry[name]) for name, (test, _) in ENTRY.items()):
        return None
    index, resolution = entry["token_item_index"], entry["parent_resolution"]
    parent = entry["parent_call_id"]
    holds = (
        len(entry["generation_log_probs"]) == len(entry["generation_token_ids"])
        and (index is None or 0 <= index < len(entry["output_items"]))
        and (resolution != "resolved" or bool(parent))
        and (resolution not in ("root", "unresolved") or parent is None)
        and (not entry["prompt_is_delta"] or resolution == "resolved")
    )
    return entry if holds else None


def digest_of(tokens: list[int]) -> str:
    data = b"nemo-gym-tokens"
    if tokens:
        data += struct.pack(f">BQ{len(tokens)}Q", 1, len(tokens), *tokens)
    return hashlib.sha256(data).hexdigest()


def read_state(root: Path, key: str) -> dict[str, Any] | None:
    path = root / f"{key}.tokens.state.json"
    if not path.is_file():
        return {}
    try:
        state = json.loads(path.read_bytes().decode(), parse_constant=refuse)
    except (ValueError, UnicodeDecodeError):
        return None
    if not isinstance(state, dict):
        return None
    digests = state.get("entry_digests", {})
    snapshot = state.get("snapshot_id", "")
    good = (
        all(type(state.get(name, False)) is bool for name in ("frozen", "retired", "incomplete"))
        and all(is_count(state.get(name, 0)) for name in ("version", "indexed_size"))
        and is_text(snapshot)
        and re.fullmatch("[0-9a-f]{0,64}", snapshot)
        and isinstance(digests, dict)
        and all(map(is_sha, digests.values()))
    )
    return state if good else None


def check_tokens(root: Path, key: str, state: dict[str, Any] | None) -> Iterator[Breach]:
    name = f"{key}.tokens.jsonl"
    data = read(root, name)
    lines: dict[str, bytes] = {}
    tokens: dict[str, list[int] | None] = {}
    indexed: dict[str, str] = {}
    for offset, piece, value, fault in objects(data):
        if fault:
            yield fault, name
        if value is None:
            continue
        version = value.get("schema_version")
        if type(version) is int and version > 5:
            yield "ledger-version", name
            continue
        entry = full_entry(value)
        if entry is None or type(version) is not int or version < 1:
            yield "ledger-entry", name
            continue
        if entry["rollout_id"] != key:
            yield "ledger-owner", name
            continue
        call = entry["model_call_id"]
        if state is not None and offset < state.get("indexed_size", 0):
            indexed.setdefault(call, hashlib.sha256(piece).hexdigest())
        if call in lines:
            yield "ledger-repeated" if lines[call] == piece else "ledger-conflict", name
            continue
        yield from ((rule, name) for rule in check_sums(entry, tokens))
        lines[call] = piece
    state_name = f"{key}.tokens.state.json"
    if state is None or state.get("indexed_size", 0) > len(data):
        yield "ledger-state", state_name
    elif state.get("entry_digests", {}) != indexed:
        yield "ledger-index", state_name
    marked = (root / f"{key}.tokens.incomplete").is_file()
    if marked or (state is not None and state.get("incomplete")):
        yield "ledger-incomplete", f"{key}.tokens.incomplete"
    begun: set[str] = set()
    for text in read(root, f"{key}.tokens.intents").split(b"\n")[:-1]:
        call = text.decode(errors="backslashreplace").strip()
        if call.startswith("-"):
            begun.discard(call[1:])
        elif call:
            begun.add(call)
    if begun - set(lines):
        yield "ledger-intent", f"{key}.tokens.intents"


def check_sums(entry: dict[str, Any], tokens: dict[str, list[int] | None]) -> Iterator[str]:
    parent = entry["parent_call_id"]
    before: list[int] | None = []
    if parent is not None:
        before = tokens.get(parent)
        if parent not in tokens:
            yield "ledger-parent"
    own = entry["prompt_token_ids"] + entry["generation_token_ids"]
    if not entry["prompt_is_delta"]:
        if before and entry["prompt_token_ids"][: len(before)] != before:
            yield "ledger-gap"
        before = []
    full = None if before is None else before + own
    tokens[entry["model_call_id"]] = full
    if full is not None and (
        entry["cum_len"] not in (None, len(full)) or entry["digest"] not in (None, digest_of(full))
    ):
        yield "ledger-digest"


# External staging

COUNTS = (
    "context_len",
    "prev_len",
    "delta_len",
    "cum_len",
    "weight_version",
    "fingerprint_version",
)
SHAS = (
    "context_digest", "digest", "cumulative_hash", "chain_hash", "staging_digest", "extras_digest",
)  # fmt: skip


def row_breach(row: dict[str, Any]) -> str | None:
    if "failure_reason" in row:
        good = is_text(row["failure_reason"]) and row["failure_reason"]
        return "ledger-failure" if good and is_call_id(row.get("model_call_id")) else "ledger-row"
    absent = {"output_fingerprint", "continuation_fingerprint", "admitted_at", "parent_call_id"}
    if absent - set(row):
        return "ledger-row"
    parent, chain = row["parent_call_id"], row.get("staging_chain")
    good = (
        is_call_id(row.get("model_call_id"))
        and all(is_text(row.get(name)) and row[name] for name in ("staging_key", "response_id"))
        and is_text(row.get("fingerprint"))
        and all(is_count(row.get(name)) for name in COUNTS)
        and all(is_sha(row.get(name)) for name in SHAS)
        and all(
            row[name] is None or is_sha(row[name])
            for name in ("output_fingerprint", "continuation_fingerprint")
        )
        and (row["admitted_at"] is None or is_number(row["admitted_at"]))
        and array_of(lambda item: is_text(item) and item != "")(chain)
        and (parent is None or (is_text(parent) and parent != ""))
        and ("capture_key" not in row or is_key(row["capture_key"]))
    )
    if not good or row.get("mode") != ("text" if parent is None else "token_in"):
        return "ledger-row"
    if (row["prev_len"] == 0) != (parent is None) or row["delta_len"] == 0:
        return "ledger-row"
    if row["cum_len"] != row["prev_len"] + row["delta_len"]:
        return "ledger-row"
    return None if row["digest"] == row["cumulative_hash"] else "ledger-digest"


def is_key(value: Any) -> bool:
    return is_text(value) and split_name(f"{value}.tokens.lock") is not None


def check_rows(path: Path) -> Iterator[Breach]:
    known: dict[str, dict[str, Any]] = {}
    staged: set[str] = set()
    for _, _, row, fault in objects(path.read_bytes()):
        if fault:
            yield fault, path.name
        if row is None:
            continue
        if breach := row_breach(row):
            yield breach, path.name
        call = row.get("model_call_id")
        if not is_text(call):
            continue
        if call in known:
            same = json.dumps(known[call], sort_keys=True) == json.dumps(row, sort_keys=True)
            yield "ledger-repeated" if same else "ledger-conflict", path.name
            continue
        parent = row.get("parent_call_id")
        if is_text(parent):
            if parent not in known or "failure_reason" in known[parent]:
                yield "ledger-parent", path.name
            elif known[parent].get("cum_len") != row.get("prev_len"):
                yield "ledger-gap", path.name
        key = row.get("staging_key")
        if is_text(key):
            if key in staged:
                yield "ledger-staging-key", path.name
            staged.add(key)
        known[call] = row
