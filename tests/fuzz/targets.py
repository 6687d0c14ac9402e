"""What is fuzzed: each target takes any bytes and may raise nothing but errors of the tree.

Checksums would stop a fuzzer at the first byte it changes, so each target reads its input as it
is and once more with the checksums made right.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from ckptfmt.errors import CkptError
from ckptfmt.exact import check_json, restore
from ckptfmt.manifest import CheckpointManifest, ParticipantManifest, decode_manifest
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record
from ckptfmt.schema import read_record
from ckptfmt.stream import BytesSource, StreamReader
from ckptfmt.stream.checksum import crc32c
from ckptfmt.wire import EMPTY_ZSTD_FRAME, SKIPPABLE_MAGIC, TAG_BLOCK

__all__ = ["TARGETS", "fuzz_exact", "fuzz_manifest", "fuzz_stream"]

_MAGIC: Final = SKIPPABLE_MAGIC.to_bytes(4, "little")
_STORED_AT: Final = 8 + 4 + 16 + 4 + 8 + 4 + 8
_SEPARATOR: Final = b"\0"


def fuzz_stream(data: bytes) -> None:
    """Reads a stream in every way there is."""
    for stream in (data, _resealed(data)):
        with StreamReader(BytesSource(stream, "fuzzed")) as reader:
            for read in (_lines, _entries, _digests, _salvage):
                with contextlib.suppress(CkptError):
                    read(reader)


def _lines(reader: StreamReader) -> None:
    head = reader.head()
    for stored in reader.lines():
        _values(head.kind, stored.line)


def _entries(reader: StreamReader) -> None:
    for entry in reader.entries():
        reader.get(entry.key)
        reader.at(entry.ordinal)


def _digests(reader: StreamReader) -> None:
    for _ in reader.digests():
        pass


def _salvage(reader: StreamReader) -> None:
    for _ in reader.salvage():
        pass


def _resealed(data: bytes) -> bytes:
    """``data`` with a right crc in every piece that its own lengths lead to."""
    out = bytearray(data)
    at = len(EMPTY_ZSTD_FRAME)
    while out[at : at + 4] == _MAGIC:
        end = at + 8 + int.from_bytes(out[at + 4 : at + 8], "little")
        if not at + 16 <= end <= len(out):
            break
        out[end - 4 : end] = crc32c(bytes(out[at + 8 : end - 4])).to_bytes(4, "little")
        stored = 0
        if out[at + 8 : at + 12] == TAG_BLOCK:
            stored = int.from_bytes(out[at + _STORED_AT : at + _STORED_AT + 8], "little")
        at = end + stored
    return bytes(out)


def fuzz_manifest(data: bytes) -> None:
    """Reads both manifests, as they are and with a right seal."""
    digest = hashlib.sha256(data).hexdigest()
    sealed = data + f',"self":"sha256:{digest}"}}\n'.encode()
    for manifest in (data, sealed):
        for expected in (ParticipantManifest, CheckpointManifest):
            with contextlib.suppress(CkptError):
                decode_manifest(manifest, expected)


def fuzz_exact(data: bytes) -> None:
    """Reads a record line, a value with annotations, and a JSON text that has to come back."""
    for kind in ("controller", "agent", "resources"):
        with contextlib.suppress(CkptError):
            _values(kind, data)
    text, _, annotations = data.partition(_SEPARATOR)
    with contextlib.suppress(CkptError):
        restore(text, annotations)
    with contextlib.suppress(CkptError):
        check_json(data)
        payload = JsonPayload.from_json(data)
        assert payload.json_bytes() == data


def _values(kind: str, line: bytes) -> None:
    record = read_record(kind, line)
    generic = record if isinstance(record, Record) else record.to_record()
    for payload in generic.members.values():
        with contextlib.suppress(CkptError):
            payload.value()
        with contextlib.suppress(CkptError):
            payload.json_bytes()


TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "stream": fuzz_stream,
    "manifest": fuzz_manifest,
    "exact": fuzz_exact,
}
"""Name of a target and of its corpus -> the function."""
