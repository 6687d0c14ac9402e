"""Every store of this package keeps the contract, whichever means it works by."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ckptfmt.store import LocalStore, MemoryStore, Store
from ckptfmt.testing.faulty import FaultyStore, Plan
from ckptfmt.testing.os_faults import lacking
from ckptfmt.testing.store_contract import StoreContract


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path)


class TestLocalStoreWithoutHardLinks(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path, calls=lacking(errno.EPERM, "link"))


class TestLocalStoreOfExclusiveCreation(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        calls = lacking(errno.EOPNOTSUPP, "link", "rename_noreplace")
        return LocalStore(tmp_path, allow_o_excl=True, calls=calls)


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestFaultyStoreWithoutFaults(StoreContract):
    @pytest.fixture(params=["local", "memory"])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
        inner = LocalStore(tmp_path) if request.param == "local" else MemoryStore()
        return FaultyStore(inner, Plan())
