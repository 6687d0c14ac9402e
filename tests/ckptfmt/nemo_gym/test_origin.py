"""What a converted checkpoint keeps of Gym's layout."""

from __future__ import annotations

import pytest

from ckptfmt.errors import CorruptError
from ckptfmt.nemo_gym.layout import GymManifest, encode_gym_manifest
from ckptfmt.nemo_gym.lines import Order
from ckptfmt.nemo_gym.origin import (
    aggregate_files,
    keep_aggregate,
    keep_participant,
    origin_of,
)

MANIFEST = encode_gym_manifest(
    GymManifest(
        checkpoint_id="ck-1",
        instance="a1",
        kind="agent",
        record_count=5,
        records_file="records.jsonl",
        records_sha256="ab" * 32,
    )
)
ONE = Order(("b", "episode_id"), ("attempt", "rollout_id"))
TWO = Order(("a", "episode_id"))
ORDERS = {0: ONE, 1: ONE, 3: TWO, 4: ONE}


def test_everything_comes_back() -> None:
    kept = keep_participant(MANIFEST, ORDERS, 5)
    origin = origin_of(kept, 5)
    assert origin is not None
    assert (origin.data, origin.orders) == (MANIFEST, ORDERS)
    assert origin.manifest.records_file == "records.jsonl"
    files = {"gym_checkpoint.json": '{"ü":1}\n'.encode(), "LATEST": b"x"}
    assert aggregate_files(keep_aggregate(files)) == files


def test_where_all_orders_are_ours_nothing_is_kept_of_them() -> None:
    assert list(keep_participant(MANIFEST, {}, 5)) == ["nemo-gym/manifest.json"]


def test_many_records_of_one_order_take_no_room() -> None:
    kept = keep_participant(MANIFEST, dict.fromkeys(range(100_000), ONE), 100_000)
    assert len(kept["nemo-gym/member-orders"]) < 200


def test_what_was_not_converted_has_no_origin() -> None:
    assert origin_of({"commit": "abc"}, 5) is None
    assert aggregate_files({"commit": "abc"}) == {}


def test_a_participant_with_other_records_has_none_either() -> None:
    assert origin_of(keep_participant(MANIFEST, ORDERS, 5), 4) is None


@pytest.mark.parametrize(
    "orders",
    [
        "",
        "[]",
        '{"orders":[],"runs":[[0,5]]}',
        '{"orders":[],"runs":[[null,4]]}',
        '{"orders":[],"runs":[[null,-1],[null,6]]}',
        '{"orders":[[["a"],["b"]]],"runs":[[-1,5]]}',
        '{"orders":[[["a"]]],"runs":[[0,1e9]]}',
        '{"orders":[],"runs":[[null,99999999999]]}',
        '{"orders":[],"runs":[[null,5]],"more":' + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_malformed_orders_are_corrupt(orders: str) -> None:
    kept = keep_participant(MANIFEST, {}, 5) | {"nemo-gym/member-orders": orders}
    with pytest.raises(CorruptError):
        origin_of(kept, 5)


def test_a_malformed_manifest_is_corrupt() -> None:
    with pytest.raises(CorruptError):
        origin_of({"nemo-gym/manifest.json": "{}"}, 5)


def test_what_is_not_utf8_cannot_be_kept() -> None:
    with pytest.raises(CorruptError, match="LATEST"):
        keep_aggregate({"LATEST": b"\xff"})
