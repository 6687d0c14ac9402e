"""``<key>.tokens.state.json``: flags that no line tells, and an index of the lines.

The index is only ever a help: it is rebuilt from the lines that it lacks.  Members that
are not known here are kept and written back.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import orjson
from msgspec import Meta

from ckptfmt.errors import CorruptError
from ckptfmt.ledger.entry import parse_object

__all__ = ["LedgerState"]

_Count = Annotated[int, Meta(ge=0)]
_Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Hex = Annotated[str, Meta(pattern=r"\A[0-9a-f]*\Z", max_length=64)]
_EXTRAS: Final = ""


class LedgerState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the state file; a ledger without one has the defaults.

    ``version`` counts what happened to the ledger.  ``entry_digests`` maps the call id of
    every line among the first ``indexed_size`` bytes to the SHA-256, in hex, of that line
    without its newline.
    """

    frozen: bool = False
    retired: bool = False
    incomplete: bool = False
    snapshot_id: _Hex = ""
    version: _Count = 0
    entry_digests: dict[str, _Sha256] = msgspec.field(default_factory=dict)
    indexed_size: _Count = 0
    extras: dict[str, Any] = msgspec.field(default_factory=dict, name=_EXTRAS)

    @classmethod
    def decode(cls, data: bytes) -> LedgerState:
        """Read the file's content.

        Raises:
            CorruptError: it is no state.
        """
        members = parse_object(data)
        known = {name: value for name, value in members.items() if name in _KNOWN}
        known[_EXTRAS] = {name: value for name, value in members.items() if name not in _KNOWN}
        try:
            return msgspec.convert(known, cls)
        except msgspec.ValidationError as error:
            raise CorruptError(f"not a ledger's state: {error}") from error

    def encode(self) -> bytes:
        """The file's content."""
        members = msgspec.structs.asdict(self)
        del members["extras"]
        return orjson.dumps(
            {**self.extras, **members}, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        )

    def beyond(self, size_bytes: int) -> CorruptError | None:
        """What is wrong if there are so many bytes of lines; of a retired ledger nothing is."""
        if self.retired or self.indexed_size <= size_bytes:
            return None
        return CorruptError(
            f"indexed_size {self.indexed_size:,} is beyond {size_bytes:,} bytes of lines"
        )

    @property
    def refused_call_ids(self) -> frozenset[str]:
        """Calls that the engine refused before it generated anything.

        NeMo Gym notes them here; such a call was not lost.
        """
        refusals = self.extras.get("refusals")
        if not isinstance(refusals, list):
            return frozenset()
        ids = (item.get("model_call_id") for item in refusals if isinstance(item, dict))
        return frozenset(found for found in ids if isinstance(found, str))


_KNOWN: Final = frozenset(LedgerState.__struct_fields__) - {"extras"}
