"""Types of a struct's fields, checked also where it is made by hand."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from ckptfmt.errors import ValueRefusedError

__all__ = ["check_types", "form_of"]


def form_of(cls: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The fields of ``cls`` without what it does when it is made: for :func:`check_types`."""
    fields: list[Any] = [
        (field.name, field.type)
        if field.required
        else (field.name, field.type, msgspec.field(default=None))
        for field in msgspec.structs.fields(cls)
    ]
    return msgspec.defstruct(cls.__name__, fields, kw_only=True)


def check_types(made: msgspec.Struct, form: type[msgspec.Struct], what: str) -> None:
    """Check every field against its type; arrays become copies, which nobody else changes.

    Raises:
        ValueRefusedError: a field has another type; the message says which.
    """
    given = {
        name: value for name, value in msgspec.structs.asdict(made).items() if value is not UNSET
    }
    try:
        checked = msgspec.convert(given, form)
    except msgspec.ValidationError as error:
        raise ValueRefusedError(f"{what}: {error}") from error
    for name in given:
        msgspec.structs.force_setattr(made, name, getattr(checked, name))
