"""The JSON contract: what each command's lines hold.  Members are only added.

A line is an object with a ``type``.  With ``--format json`` the same objects stand in one
document: ``{"schema": ..., "items": [...], "summary": {...}}``.  The schemas are in the
words of JSON Schema (draft 2020-12).  Lines on standard error are under ``""``.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

__all__ = ["SCHEMAS", "Schema"]

Schema: TypeAlias = dict[str, Any]

_ANY: Final[Schema] = {}
_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_OBJECT: Final[Schema] = {"type": "object"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_SHA256: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _object(optional: tuple[str, ...] = (), /, **members: Schema) -> Schema:
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": members, "required": required}


def _line(kind: str, optional: tuple[str, ...] = (), /, **members: Schema) -> Schema:
    return _object(optional, **{"type": {"const": kind}, **members})


def _summary(command: str, **totals: Schema) -> Schema:
    """Totals are missing where the command ended before it knew them."""
    return _line(
        "summary",
        tuple(totals),
        schema={"const": f"ckpt-inspect/{command}/1"},
        **totals,
        exit_code=_COUNT,
        reason=_or_null(_TEXT),
    )


_LOCATION: Final = _object(
    ("checkpoint", "participant", "file", "block", "offset", "ordinal", "key", "pointer"),
    checkpoint=_TEXT,
    participant=_TEXT,
    file=_TEXT,
    block=_COUNT,
    offset=_COUNT,
    ordinal=_COUNT,
    key=_TEXT,
    pointer=_TEXT,
)
_PROVENANCE: Final = _object(
    library=_TEXT, python=_TEXT, host=_TEXT, created_at=_TEXT, user=_OBJECT
)
_PROBLEM: Final = _object(code=_TEXT, message=_TEXT)
_LOST: Final = _line("lost", code=_TEXT, message=_TEXT, location=_LOCATION)
_STATE: Final[Schema] = {"enum": ["complete", "incomplete", "aborted", "damaged"]}
_SEVERITY: Final[Schema] = {"enum": ["error", "warning"]}
_RULE: Final = {"rule": _TEXT, "severity": _SEVERITY, "explanation": _TEXT, "advice": _TEXT}
_SHOWN: Final = {"shown": _COUNT, "total": _or_null(_COUNT), "truncated": _FLAG}

_LS: Final = {
    "checkpoint": _line(
        "checkpoint",
        folder=_TEXT,
        checkpoint_id=_or_null(_TEXT),
        state=_STATE,
        latest=_FLAG,
        sequence=_or_null(_COUNT),
        records=_or_null(_COUNT),
        bytes=_or_null(_COUNT),
        created_at=_or_null(_TEXT),
        problem=_or_null(_PROBLEM),
    ),
    "participant": _line(
        "participant",
        address=_TEXT,
        kind=_TEXT,
        instance=_TEXT,
        state=_STATE,
        records=_or_null(_COUNT),
        bytes=_or_null(_COUNT),
        episodes=_or_null(_COUNT),
    ),
    "record": _line("record", address=_TEXT, key=_TEXT, ordinal=_COUNT, bytes=_COUNT),
    "summary": _summary("ls", checkpoints=_COUNT, complete=_COUNT, foreign=_COUNT, **_SHOWN),
}

_INFO: Final = {
    "checkpoint": _line(
        "checkpoint",
        checkpoint_id=_or_null(_TEXT),
        state=_STATE,
        sequence=_or_null(_COUNT),
        previous=_or_null(_object(checkpoint_id=_TEXT, sha256=_SHA256)),
        run_id=_or_null(_TEXT),
        config_digest=_or_null(_TEXT),
        scope=_or_null(_COUNT),
        format_version=_or_null(_TEXT),
        sha256=_or_null(_SHA256),
        recovered=_ANY,
        user_metadata=_ANY,
        unknown_members=_or_null(_TEXTS),
        provenance=_or_null(_PROVENANCE),
    ),
    "participant": _line(
        "participant",
        address=_TEXT,
        kind=_TEXT,
        instance=_TEXT,
        schema=_TEXT,
        schema_version=_COUNT,
        records=_COUNT,
        episodes=_COUNT,
        objects=_COUNT,
        blocks=_COUNT,
        bytes=_COUNT,
        raw_bytes=_COUNT,
        content_digest=_SHA256,
        role=_ANY,
        ledger_pins=_COUNT,
        unknown_members=_TEXTS,
        provenance=_PROVENANCE,
    ),
    "summary": _summary(
        "info", participants=_COUNT, records=_COUNT, bytes=_COUNT, raw_bytes=_COUNT
    ),
}

_CAT: Final = {
    "record": _line("record", address=_TEXT, record=_OBJECT),
    "lost": _LOST,
    "summary": _summary("cat", records=_COUNT, raw_bytes=_COUNT, lost=_COUNT, **_SHOWN),
}

_GET: Final = {
    "value": _line(
        "value",
        address=_TEXT,
        value=_ANY,
        exact={"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 3}},
        default=_FLAG,
    ),
    "summary": _summary("get", found=_FLAG),
}

_FINDING: Final = {
    "rule": _TEXT,
    "severity": _SEVERITY,
    "message": _TEXT,
    "code": _or_null(_TEXT),
    "location": _LOCATION,
}
_FOUND: Final = {
    "errors": _COUNT,
    "warnings": _COUNT,
    "by_rule": _OBJECT,
    "start": _or_null(_TEXT),
    "advice": _OBJECT,
    "verdict": _TEXT,
}

_VALIDATE: Final = {
    "finding": _line("finding", input=_TEXT, address=_or_null(_TEXT), **_FINDING),
    "input": _line(
        "input",
        input=_TEXT,
        level={"enum": ["quick", "full", "deep"]},
        valid=_or_null(_FLAG),
        partial=_FLAG,
        participants=_COUNT,
        records=_COUNT,
        total_records=_COUNT,
        raw_bytes=_COUNT,
        errors=_COUNT,
        warnings=_COUNT,
    ),
    "rule": _line("rule", **_RULE),
    "explanation": _line("explanation", **_RULE),
    "summary": _summary(
        "validate",
        inputs=_COUNT,
        unreadable=_COUNT,
        finished=_FLAG,
        valid=_COUNT,
        partial=_COUNT,
        skipped=_COUNT,
        **_FOUND,
    ),
}

_LEDGER: Final = {
    "rollout": _line(
        "rollout",
        key=_TEXT,
        rollout_id=_TEXT,
        attempt=_COUNT,
        files=_TEXTS,
        bytes=_COUNT,
        calls=_or_null(_COUNT),
        frozen=_FLAG,
        retired=_FLAG,
        incomplete=_FLAG,
        continued_by=_or_null(_TEXT),
        problem=_or_null(_PROBLEM),
    ),
    "call": _line(
        "call",
        call_id=_TEXT,
        parent_call_id=_or_null(_TEXT),
        depth=_COUNT,
        column=_COUNT,
        prompt_tokens=_or_null(_COUNT),
        generated_tokens=_or_null(_COUNT),
        cumulative_tokens=_or_null({"type": "integer"}),
        note=_TEXT,
        file=_TEXT,
        offset=_COUNT,
    ),
    "unrecorded": _line("unrecorded", call_id=_TEXT, reason={"enum": ["begun", "lost"]}),
    "lost": _LOST,
    "finding": _line("finding", **_FINDING),
    "summary": _summary(
        "ledger",
        rollouts=_COUNT,
        frozen=_COUNT,
        retired=_COUNT,
        incomplete=_COUNT,
        damaged=_COUNT,
        found=_FLAG,
        **_SHOWN,
        unrecorded=_COUNT,
        lost=_COUNT,
        finished=_FLAG,
        **_FOUND,
    ),
}

_RECOVER: Final = {
    "lost": _line("lost", message=_TEXT, location=_LOCATION),
    "summary": _summary(
        "recover", records=_COUNT, lost=_COUNT, unlisted=_COUNT, output=_TEXT, published=_FLAG
    ),
}

_CONVERT: Final = {
    "beyond": _line("beyond", address=_TEXT, tags=_TEXTS, changed=_FLAG),
    "summary": _summary(
        "convert",
        checkpoint_id=_TEXT,
        participants=_COUNT,
        records=_COUNT,
        beyond=_COUNT,
        output=_TEXT,
        written=_FLAG,
    ),
}

_GC: Final = {
    "kept": _line("kept", name=_TEXT, reason=_TEXT),
    "delete": _line("delete", name=_TEXT, deleted=_FLAG, error=_or_null(_TEXT)),
    "summary": _summary("gc", planned=_COUNT, kept=_COUNT, applied=_FLAG, deleted=_COUNT),
}

_TALK: Final = {
    "error": _line(
        "error",
        ("location", "advice", "causes", "traceback"),
        code=_TEXT,
        message=_TEXT,
        location=_LOCATION,
        advice=_or_null(_TEXT),
        causes=_TEXTS,
        traceback=_TEXT,
    ),
    "notice": _line("notice", message=_TEXT),
    "progress": _line(
        "progress",
        what=_TEXT,
        records=_COUNT,
        total_records=_or_null(_COUNT),
        raw_bytes=_COUNT,
        elapsed_s={"type": "number", "minimum": 0},
    ),
}

SCHEMAS: Final[dict[str, dict[str, Schema]]] = {
    "": _TALK,
    "ls": _LS,
    "info": _INFO,
    "cat": _CAT,
    "get": _GET,
    "validate": _VALIDATE,
    "ledger": _LEDGER,
    "recover": _RECOVER,
    "convert": _CONVERT,
    "gc": _GC,
}
"""Command -> type of a line -> its schema."""
