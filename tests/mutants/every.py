"""All mutants, of every part."""

from __future__ import annotations

from tests.mutants import coordination, participant, roles_ea, roles_rm

__all__ = ["MUTANTS"]

MUTANTS = [*participant.MUTANTS, *coordination.MUTANTS, *roles_ea.MUTANTS, *roles_rm.MUTANTS]
