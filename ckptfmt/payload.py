"""Opaque state: checked once, then kept and written as the bytes that it is."""

from __future__ import annotations

import re
from typing import Any, Final, Self

import orjson

from ckptfmt.errors import StateError
from ckptfmt.exact import check_json, encode, restore
from ckptfmt.exact.restore import verbatim
from ckptfmt.exact.text import Buffer

__all__ = ["JsonPayload"]

_TEXT_ANNOTATION: Final = b'[["","text"]]'
# The first byte of JSON text that is stored as a string, after its own white space.
_OPENING_IN_STRING: Final = re.compile(rb'"(?: |\\[nrt])*(.)', re.DOTALL)


class JsonPayload:
    """A JSON value that servers hand through, from a Python value or from JSON bytes.

    The stored form is strict JSON in UTF-8 on one line, and the annotations that bring
    back what JSON cannot spell.  Both go into a record's line untouched, and into the
    next checkpoint again; nothing is decoded before :meth:`value` is called.
    """

    __slots__ = ("_annotations", "_text")

    _text: Buffer
    _annotations: Buffer | None

    @classmethod
    def from_value(cls, value: object) -> Self:
        """Check a Python value and keep its spelling.

        Raises:
            ValueRefusedError: it cannot be stored exactly; see :func:`ckptfmt.exact.encode`.
        """
        encoded = encode(value)
        return cls.stored(encoded.text, encoded.annotations)

    @classmethod
    def from_json(cls, data: bytes | bytearray | memoryview) -> Self:
        """Check JSON text and keep it byte for byte, white space and duplicates included.

        Raises:
            JsonSyntaxError: not RFC 8259 JSON in UTF-8, with the byte offset.
            DepthError: nested more than 499 levels.
        """
        data = bytes(data)
        if check_json(data):
            return cls.stored(data)
        return cls.stored(orjson.dumps(data.decode()), _TEXT_ANNOTATION)

    @classmethod
    def stored(cls, text: Buffer, annotations: Buffer | None = None) -> Self:
        """A payload as it stands in a line; the caller vouches for both parts."""
        payload = cls.__new__(cls)
        payload._text = text
        payload._annotations = annotations
        return payload

    @property
    def text(self) -> Buffer:
        """The JSON text that stands in the line."""
        return self._text

    @property
    def annotations(self) -> Buffer | None:
        """The JSON list of annotations that belongs to :attr:`text`, or None."""
        return self._annotations

    @property
    def opening(self) -> bytes:
        """The first byte of the value's own JSON: ``b"{"`` for a dict, ``b"["`` for an array."""
        notes = b"" if self._annotations is None else bytes(self._annotations)
        if notes == _TEXT_ANNOTATION:
            match = _OPENING_IN_STRING.match(bytes(self._text))
            return match[1] if match else b""
        # Entries of the root stand last: the array of pairs is a dict.
        return b"{" if notes.endswith(b'["","map"]]') else bytes(memoryview(self._text)[:1])

    def value(self) -> Any:
        """Decode: a new Python value at each call, equal in value, type and order.

        Of a payload made from JSON bytes this is what ``json.loads`` gives for them.

        Raises:
            CorruptError: text and annotations do not fit each other.
            IntegerError: JSON bytes hold an integer of more than 4,300 digits.
        """
        return restore(self._text, self._annotations)

    def json_bytes(self) -> bytes:
        """The payload as JSON for others to read.

        Raises:
            StateError: it has values that JSON cannot spell (NaN, tuples, ...); shipping
                the bare text would turn them into something else.
        """
        own = verbatim(self._text, self._annotations)
        if own is None:
            raise StateError(
                "the payload holds values that JSON cannot spell",
                advice="use value(), or text and annotations together",
            )
        return own

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JsonPayload):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __len__(self) -> int:
        """Bytes of the stored text."""
        return len(memoryview(self._text))

    def __repr__(self) -> str:
        # Never the content: payloads are large, secret and written by models.
        annotated = "" if self._annotations is None else ", annotated"
        return f"JsonPayload({len(self)} bytes{annotated})"

    def _parts(self) -> tuple[bytes, bytes | None]:
        notes = self._annotations
        return bytes(self._text), None if notes is None else bytes(notes)
