"""What a checkpoint that was converted from Gym's layout keeps, so that it can be written again.

It stands in ``provenance.user`` of our manifests, under names that begin with
``nemo-gym/``: the files of Gym's that are not records, as the text they are, and the
order of members where it is not ours.  Nothing of it says what a record is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

import msgspec

from ckptfmt.errors import CkptError, CorruptError
from ckptfmt.exact.text import from_any_stack
from ckptfmt.layout import MANIFEST_NAME
from ckptfmt.nemo_gym.layout import AGGREGATE_NAMES, GymManifest, decode_gym_manifest
from ckptfmt.nemo_gym.lines import Order

__all__ = [
    "Origin",
    "aggregate_files",
    "keep_aggregate",
    "keep_participant",
    "origin_of",
]

_PREFIX: Final = "nemo-gym/"
_MANIFEST: Final = _PREFIX + MANIFEST_NAME
_ORDERS: Final = _PREFIX + "member-orders"


class _Orders(msgspec.Struct, frozen=True):
    """Each order once, and ``[index of the order or null, records]`` for each run of records."""

    orders: list[Order]
    runs: list[tuple[int | None, int]]


@dataclass(frozen=True, slots=True)
class Origin:
    """The manifest that Gym's participant had, its bytes, and the order of members by record."""

    manifest: GymManifest
    data: bytes
    orders: Mapping[int, Order]


def keep_aggregate(files: Mapping[str, bytes]) -> dict[str, str]:
    """What to keep of the aggregates.

    Raises:
        CorruptError: one is not UTF-8.
    """
    return {_PREFIX + name: _text(data, name) for name, data in files.items()}


def keep_participant(manifest: bytes, orders: Mapping[int, Order], records: int) -> dict[str, str]:
    """What to keep of a participant with so many records.

    Raises:
        CorruptError: the manifest is not UTF-8.
    """
    kept = {_MANIFEST: _text(manifest, MANIFEST_NAME)}
    if orders:
        kept[_ORDERS] = _spelled(orders, records)
    return kept


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptError(f"{name} is not UTF-8: {error.reason}") from error


def _spelled(orders: Mapping[int, Order], records: int) -> str:
    numbers: dict[Order, int] = {}
    for order in orders.values():
        numbers.setdefault(order, len(numbers))
    of_records: Iterable[int | None] = (
        numbers[orders[ordinal]] if ordinal in orders else None for ordinal in range(records)
    )
    runs = [(number, sum(1 for _ in group)) for number, group in groupby(of_records)]
    return json.dumps({"orders": list(numbers), "runs": runs}, separators=(",", ":"))


def aggregate_files(user: Mapping[str, str]) -> dict[str, bytes]:
    """The aggregates that were kept."""
    return {
        name: user[_PREFIX + name].encode() for name in AGGREGATE_NAMES if _PREFIX + name in user
    }


def origin_of(user: Mapping[str, str], records: int) -> Origin | None:
    """What was kept of a participant that now has so many records; None where nothing was,
    or where it was of another number of records.

    Raises:
        CorruptError: it is not what :func:`keep_participant` gave.
    """
    if _MANIFEST not in user:
        return None
    data = user[_MANIFEST].encode()
    try:
        manifest = decode_gym_manifest(data)
        if manifest.record_count != records:
            return None
        orders = _read_orders(user.get(_ORDERS), records)
    except (CkptError, msgspec.MsgspecError, LookupError, ValueError) as error:
        raise CorruptError(f"what was kept of NeMo Gym's layout is malformed: {error}") from error
    return Origin(manifest, data, orders)


def _read_orders(text: str | None, records: int) -> dict[int, Order]:
    if text is None:
        return {}
    kept: Any = from_any_stack(partial(msgspec.json.decode, type=_Orders), text.encode())
    if sum(count for _, count in kept.runs) != records:
        raise ValueError("the orders are of another number of records")
    found: dict[int, Order] = {}
    ordinal = 0
    for number, count in kept.runs:
        if count < 1 or (number is not None and number < 0):
            raise ValueError("a run of records is malformed")
        if number is not None:
            found.update(dict.fromkeys(range(ordinal, ordinal + count), kept.orders[number]))
        ordinal += count
    return found
