"""Values of servers as payloads of records."""

from __future__ import annotations

from ckptfmt.errors import CkptError
from ckptfmt.payload import JsonPayload

__all__ = ["payload_of"]


def payload_of(value: object, key: str) -> JsonPayload:
    """``value`` as it is stored in the record ``key``.

    Raises:
        ValueRefusedError: ``ckptfmt`` cannot carry it; key and place are named.
    """
    try:
        return JsonPayload.from_value(value)
    except CkptError as error:
        error.at(key=key)
        raise
