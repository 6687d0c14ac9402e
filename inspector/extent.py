"""How much is looked at: a sample of records, evenly spread and always the same, and a time."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from time import monotonic
from typing import Final

from ckptfmt.errors import RefusedError

__all__ = ["OutOfTimeError", "Sample", "TimeLimit", "sample_size"]

_FORM: Final = re.compile(r"(\d{1,18})|(\d{1,3}(?:\.\d{1,9})?)%", re.ASCII)


def sample_size(asked: str, total: int) -> int:
    """How many of ``total`` records ``N`` or ``P%`` asks for; a share is rounded up.

    Raises:
        RefusedError: it asks for neither, for none, or for more than 100%.
    """
    form = _FORM.fullmatch(asked)
    share = Fraction(form[2]) / 100 if form and form[2] else Fraction(0)
    if form is None or share > 1 or not (share or int(form[1] or 0)):
        raise RefusedError(
            f"--sample {asked[:40]!a} is neither a number of records nor a percentage",
            advice="use --sample 100, or --sample 1%",
        )
    return -int(-share * total // 1) if share else int(form[1])


class Sample:
    """Says of each of ``total`` records in turn whether it is one of the ``size`` chosen.

    The k-th of these is number ``k * total // size``, from 0.
    """

    def __init__(self, size: int, total: int) -> None:
        self.size = size
        self._total = total
        self._passed = 0

    def __call__(self) -> bool:
        """Whether the next record is chosen."""
        before = self._chosen_of(self._passed)
        self._passed += 1
        return self._chosen_of(self._passed) > before

    def _chosen_of(self, records: int) -> int:
        """How many of the first records are chosen: records * size / total, rounded up."""
        return -(-records * self.size // self._total)


class OutOfTimeError(Exception):
    """The time that was granted is over."""


class TimeLimit:
    """Time in seconds from now on; there is no limit if it is None."""

    def __init__(self, limit_s: int | None) -> None:
        self._end_s = math.inf if limit_s is None else monotonic() + limit_s

    @property
    def is_over(self) -> bool:
        """Whether it is time to stop."""
        return monotonic() >= self._end_s

    def check(self) -> None:
        """Stop whoever calls it, if it is.

        Raises:
            OutOfTimeError: the time is over.
        """
        if self.is_over:
            raise OutOfTimeError
