"""Exact JSON: Python values and JSON text that come back as they went in.

JSON cannot spell every value that a server holds, and fast encoders lose such
values silently.  Here the text is always strict JSON, and what JSON cannot
spell is annotated beside it (``docs/format.md``, section 4).

:func:`encode` checks and spells a value, :func:`restore` brings it back;
:func:`check_json` judges text that a caller already has.
"""

from ckptfmt.exact.encode import Encoded, encode
from ckptfmt.exact.restore import restore
from ckptfmt.exact.text import check_json, decode_json

__all__ = ["Encoded", "check_json", "decode_json", "encode", "restore"]
