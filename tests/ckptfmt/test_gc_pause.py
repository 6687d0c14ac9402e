"""The collector rests inside the block, and everybody gets their own setting back."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from ckptfmt.exact import decode_json
from ckptfmt.gc_pause import bulk_decode, gc_paused
from ckptfmt.payload import JsonPayload
from ckptfmt.testing.os_faults import forked


@pytest.fixture(autouse=True, params=[True, False], ids=["enabled", "disabled"])
def setting(request: pytest.FixtureRequest) -> Iterator[bool]:
    """The setting of the process before, given back after the test."""
    before = gc.isenabled()
    enabled: bool = request.param
    (gc.enable if enabled else gc.disable)()
    yield enabled
    (gc.enable if before else gc.disable)()


def test_the_collector_rests_and_comes_back(setting: bool) -> None:
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled() is setting


def test_nested_users_pause_once(setting: bool) -> None:
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() is setting


def test_the_setting_comes_back_after_an_error(setting: bool) -> None:
    for _ in range(2):
        with pytest.raises(KeyError), gc_paused(), gc_paused():
            raise KeyError
        assert gc.isenabled() is setting


def test_users_may_leave_in_another_order_than_they_came(setting: bool) -> None:
    first, second = gc_paused(), gc_paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled() is setting


def test_concurrent_users_together_give_the_setting_back(setting: bool) -> None:
    start = threading.Barrier(8)
    seen: list[bool] = []

    def work() -> None:
        start.wait()
        for _ in range(300):
            with gc_paused():
                seen.append(gc.isenabled())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [False] * 2400
    assert gc.isenabled() is setting


@pytest.mark.parametrize("text", [b"[1]", b"1e400", b"nope"])
def test_decoding_gives_the_setting_back(text: bytes, setting: bool) -> None:
    try:
        decode_json(text)
    except Exception:  # noqa: BLE001 - whatever it says, the setting must be back
        assert text == b"nope"
    assert gc.isenabled() is setting


def test_the_setting_comes_back_and_nothing_is_lost_or_frozen(setting: bool) -> None:
    payload = JsonPayload.from_value([{"a": [number]} for number in range(1000)])
    before = gc.get_freeze_count()
    with bulk_decode():
        assert not gc.isenabled()
        values = [payload.value() for _ in range(20)]
    assert gc.isenabled() is setting
    assert gc.get_freeze_count() == before
    assert all(value == payload.value() for value in values)


def test_what_was_decoded_is_old_and_still_collected() -> None:
    with bulk_decode():
        values = [[number] for number in range(1000)]
        values.append(values)
    assert not any(item is values for item in gc.get_objects(generation=0))
    assert any(item is values for item in gc.get_objects(generation=2))
    del values
    assert gc.collect() >= 1


def test_what_a_program_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        assert frozen
        with bulk_decode():
            JsonPayload.from_value([1]).value()
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()


def test_an_error_inside_leaves_the_setting(setting: bool) -> None:
    with pytest.raises(ZeroDivisionError), bulk_decode():
        raise ZeroDivisionError
    assert gc.isenabled() is setting


def test_a_child_of_fork_has_the_setting_though_another_thread_paused(setting: bool) -> None:
    """S33: the thread that would give it back is not in the child."""
    paused, done = threading.Event(), threading.Event()

    def pause() -> None:
        with gc_paused():
            paused.set()
            done.wait()

    def look() -> None:
        assert gc.isenabled() is setting
        with gc_paused():
            assert not gc.isenabled()
        assert gc.isenabled() is setting

    thread = threading.Thread(target=pause)
    thread.start()
    paused.wait()
    try:
        assert forked(look) == 0
    finally:
        done.set()
        thread.join()


def test_a_child_of_fork_that_was_made_inside_the_block_leaves_it_as_it_was(setting: bool) -> None:
    with gc_paused():
        pid = os.fork()
    if pid == 0:
        os._exit(0 if gc.isenabled() is setting else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert gc.isenabled() is setting


def test_a_child_of_fork_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may be counting itself at the moment of the fork."""
    lock = threading.Lock()
    monkeypatch.setattr("ckptfmt.gc_pause._lock", lock)

    def pause() -> None:
        with gc_paused():
            pass

    with lock:
        assert forked(pause) == 0
