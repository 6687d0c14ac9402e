"""The list of mutants is one of this source: each text stands there, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

import participant
from tests.mutants.every import MUTANTS
from tests.mutants.participant import Mutant

PACKAGE = Path(participant.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_has_one_place(mutant: Mutant) -> None:
    assert (PACKAGE / mutant.path).read_text(encoding="utf-8").count(mutant.old) == 1


def test_there_are_enough_of_them_and_no_two_of_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
