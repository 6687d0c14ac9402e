"""The typed records of the four roles (roles.md, first table)."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import (
    CkptError,
    CorruptError,
    NameRefusedError,
    UnsupportedError,
    ValueRefusedError,
)
from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record, join_line
from ckptfmt.schema import (
    SCHEMAS,
    AgentRecord,
    EnvironmentRecord,
    ModelRecord,
    ResourcesRecord,
    TypedRecord,
    read_record,
)
from ckptfmt.testing.same import assert_same
from ckptfmt.testing.strategies import episode_ids, exact_values, json_texts, payloads

OPENING = b'{"episode_id":{"rollout_id":"r","attempt":1}'
EPISODE = EpisodeId("r", 1)
DIGEST = "0123456789abcdef" * 4
VALUE = JsonPayload.from_value


def environment(**changed: Any) -> EnvironmentRecord:
    given = {"task_digest": DIGEST, "boundary": None, **changed}
    return EnvironmentRecord(episode_id=EPISODE, **given)


def agent(**changed: Any) -> AgentRecord:
    given = {"session_key": "s", "session": VALUE({"a": 1}), "boundary": None, "episode": None}
    return AgentRecord(episode_id=EPISODE, **{**given, **changed})


def resources(**changed: Any) -> ResourcesRecord:
    given = {"session_id": "s", "state": None, "owner": None, **changed}
    return ResourcesRecord(episode_id=EPISODE, **given)


def model(**changed: Any) -> ModelRecord:
    given = {"rows": VALUE([]), "generation_cuts": VALUE([]), **changed}
    return ModelRecord(episode_id=EPISODE, **given)


EXAMPLES: dict[str, tuple[TypedRecord, bytes, str]] = {
    "environment": (
        environment(boundary=VALUE({"step": 1})),
        b',"task_digest":"' + DIGEST.encode() + b'","boundary":{"step":1}}',
        "r-a1",
    ),
    "agent": (
        agent(session=VALUE(("a",)), boundary=VALUE([math.nan])),
        (
            b',"session_key":"s","session":["a"],"boundary":[null],"episode":null,'
            b'"$exact":{"session":[["","tuple"]],"boundary":[["/0","nan"]]}}'
        ),
        "r-a1/s",
    ),
    "resources": (
        resources(session_id="a/b", state=VALUE({1: 2}), owner="worker-1"),
        b',"session_id":"a/b","state":[[1,2]],"owner":"worker-1","$exact":{"state":[["","map"]]}}',
        "r-a1/a%2Fb",
    ),
    "model": (
        model(rows=VALUE([{"id": 1}])),
        b',"rows":[{"id":1}],"generation_cuts":[]}',
        "r-a1",
    ),
}


def line_of(record: TypedRecord | Record) -> bytes:
    return join_line(record.line())


def test_there_is_a_schema_for_each_role_and_an_example_here() -> None:
    assert SCHEMAS.keys() == EXAMPLES.keys()
    for kind, schema in SCHEMAS.items():
        own = [field.name for field in fields(schema)]
        assert own == ["episode_id", "extras", "stored_line", *schema.forms]
        assert schema.schema_version == 1
        assert type(EXAMPLES[kind][0]) is schema


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_line_and_key_of_each_role(kind: str) -> None:
    record, rest, key = EXAMPLES[kind]
    assert line_of(record) == OPENING + rest
    assert record.key == record.to_record().key == key
    found = read_record(kind, OPENING + rest)
    assert found == record
    assert type(found) is type(record)
    assert found.key == key
    assert line_of(found) == OPENING + rest


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_record_is_frozen_and_needs_every_member(kind: str) -> None:
    record, *_ = EXAMPLES[kind]
    with pytest.raises(FrozenInstanceError):
        record.episode_id = EPISODE  # type: ignore[misc]
    with pytest.raises(TypeError):
        type(record)(episode_id=EPISODE)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_member_is_required_in_a_line(kind: str) -> None:
    """F25: never a half-filled record."""
    record, *_ = EXAMPLES[kind]
    for name in record.forms:
        plain = record.to_record()
        rest = {other: value for other, value in plain.members.items() if other != name}
        with pytest.raises(CorruptError, match=name):
            read_record(kind, line_of(replace(plain, members=rest, sub_key_member=None)))


@pytest.mark.parametrize("kind", EXAMPLES)
def test_unknown_members_are_kept_and_written_back(kind: str) -> None:
    """F25, and minor versions."""
    _, rest, _ = EXAMPLES[kind]
    line = OPENING + b',"new": 1E5' + rest
    found = read_record(kind, line)
    assert isinstance(found, TypedRecord)
    assert found.extras["new"].json_bytes() == b"1E5"
    assert line_of(found) == line
    changed = replace(found, episode_id=EPISODE.continuation)
    again = read_record(kind, line_of(changed))
    assert isinstance(again, TypedRecord)
    assert again.extras == found.extras
    assert again.episode_id == EpisodeId("r", 2)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_unmodified_record_keeps_its_bytes_and_a_changed_copy_does_not(kind: str) -> None:
    record, rest, _ = EXAMPLES[kind]
    foreign = OPENING + rest.replace(b",", b" , ", 1)
    found = read_record(kind, foreign)
    assert found.line() == (foreign,)
    changed = replace(found, episode_id=EPISODE.continuation)
    assert line_of(changed) == line_of(replace(record, episode_id=EPISODE.continuation))
    assert line_of(found) == foreign


@given(st.sampled_from(sorted(SCHEMAS)), episode_ids(), st.data())
def test_any_record_of_a_role_comes_back(
    kind: str, episode_id: EpisodeId, data: st.DataObject
) -> None:
    objects = st.dictionaries(st.text(max_size=3), exact_values(max_leaves=3)).map(VALUE)
    arrays = st.lists(exact_values(max_leaves=3), max_size=3).map(VALUE)
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "task_digest": st.from_regex("[0-9a-f]{64}", fullmatch=True),
        "session_key": st.text(max_size=5), "session_id": st.text(max_size=5),
        "owner": st.none() | st.text(max_size=5),
        "rows": arrays, "generation_cuts": arrays, "session": payloads(),
    }  # fmt: skip
    schema = SCHEMAS[kind]
    if kind == "environment":
        kinds["boundary"] = st.none() | objects
    # A null payload is None where None may stand.
    either = st.none() | payloads().filter(lambda payload: payload != VALUE(None))
    members = {name: data.draw(kinds.get(name, either)) for name in schema.forms}
    extras = data.draw(st.dictionaries(st.sampled_from(("new", "x")), payloads()))
    record = schema(episode_id=episode_id, extras=extras, **members)
    found = read_record(kind, line_of(record))
    assert found == record
    for name, value in members.items():
        if isinstance(value, JsonPayload):
            assert_same(getattr(found, name).value(), value.value())
    assert line_of(replace(found)) == line_of(record)


BAD_FIELDS = [
    (environment, "task_digest", None), (environment, "task_digest", DIGEST[:-1]),
    (environment, "task_digest", DIGEST + "\n"), (environment, "task_digest", DIGEST.upper()),
    (environment, "task_digest", "sha256:" + DIGEST[7:]), (environment, "task_digest", 1),
    (environment, "task_digest", VALUE(DIGEST)), (environment, "boundary", {}),
    (environment, "boundary", b"{}"), (environment, "boundary", VALUE([])),
    (environment, "boundary", VALUE("{")), (environment, "boundary", VALUE(1)),
    (agent, "session_key", None),
    (agent, "session_key", 1), (agent, "session_key", VALUE("s")), (agent, "session_key", True),
    (agent, "session", None), (agent, "session", {}), (agent, "session", b"{}"),
    (agent, "session", "{}"), (agent, "boundary", 1), (agent, "episode", "null"),
    (agent, "episode", False),
    (resources, "session_id", None), (resources, "session_id", b"s"), (resources, "state", {}),
    (resources, "state", 0), (resources, "owner", 1), (resources, "owner", VALUE("w")),
    (model, "rows", None), (model, "rows", []), (model, "rows", VALUE({})),
    (model, "rows", VALUE(1)), (model, "rows", VALUE("[")), (model, "generation_cuts", VALUE(None)),
    (model, "generation_cuts", VALUE({1: 2})), (model, "rows", VALUE({(): ()})),
    (model, "rows", JsonPayload.from_json(b'"[\\n]"')),
    (model, "rows", JsonPayload.from_json(b"{\n}")),
]  # fmt: skip


@pytest.mark.parametrize(("make", "name", "value"), BAD_FIELDS, ids=range(len(BAD_FIELDS)))
def test_a_field_of_another_form_is_refused(make: Any, name: str, value: Any) -> None:
    """F23, F54's kind: nothing is coerced."""
    with pytest.raises(ValueRefusedError, match=name) as caught:
        make(**{name: value})
    assert "r-a1" in str(caught.value)


SPELLINGS = {
    "compact": b'{"a":[1]}',
    "with line breaks": b'{\n "a": [1]\n}\n',
    "with spaces around": b' {"a":[1]} ',
    "with a lone surrogate": b'{"a":"\\ud800"}',
    "deep": b'{"a":' * 300 + b"1" + b"}" * 300,
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_an_object_is_an_object_in_any_spelling(name: str) -> None:
    """What counts is the value, not how the line has to store it."""
    boundary = JsonPayload.from_json(SPELLINGS[name])
    record = environment(boundary=boundary)
    assert read_record("environment", line_of(record)) == record
    with pytest.raises(ValueRefusedError):
        model(rows=boundary)


@pytest.mark.parametrize(
    "null", [JsonPayload.from_value(None), JsonPayload.from_json(b"null")], ids=["value", "json"]
)
def test_a_payload_of_none_is_the_same_as_none_in_every_nullable_member(null: JsonPayload) -> None:
    for name in (name for name, form in EnvironmentRecord.forms.items() if form.nullable):
        record = environment(**{name: null})
        assert line_of(record) == line_of(environment(**{name: None}))
        assert getattr(read_record("environment", line_of(record)), name) is None
    with pytest.raises(ValueRefusedError):
        model(rows=null)
    with pytest.raises(ValueRefusedError):
        environment(boundary=JsonPayload.from_value(float("nan")))


@pytest.mark.parametrize("value", [{1: 2}, {"\ud800": 1}, {"a": 1, None: 2}, {(): ()}], ids=ascii)
def test_a_dict_with_keys_of_any_kind_is_an_object(value: object) -> None:
    record = environment(boundary=VALUE(value))
    found = read_record("environment", line_of(record))
    assert isinstance(found, EnvironmentRecord)
    assert found.boundary is not None
    assert_same(found.boundary.value(), value)
    with pytest.raises(ValueRefusedError):
        model(rows=VALUE(value))


@pytest.mark.parametrize("text", [b"[1,\n2]", b" [] ", b'["\\udc00"]', b"[" * 300 + b"]" * 300])
def test_an_array_is_an_array_in_any_spelling(text: bytes) -> None:
    record = model(rows=JsonPayload.from_json(text))
    assert read_record("model", line_of(record)) == record
    with pytest.raises(ValueRefusedError):
        environment(boundary=JsonPayload.from_json(text))


@pytest.mark.parametrize(
    ("extras", "error"),
    [
        ({"task_digest": VALUE("x")}, NameRefusedError),
        ({"boundary": VALUE(1)}, NameRefusedError),
        ({"episode_id": VALUE(1)}, NameRefusedError),
        ({"$exact": VALUE({})}, NameRefusedError),
        ({"$new": VALUE(1)}, NameRefusedError),
        ({"\ud800": VALUE(1)}, NameRefusedError),
        ({"x": 1}, ValueRefusedError),
        ({"x": b"1"}, ValueRefusedError),
        ({"x": None}, ValueRefusedError),
    ],
    ids=range(9),
)
def test_extras_may_not_pose_as_something_else(extras: Any, error: type[CkptError]) -> None:
    with pytest.raises(error):
        environment(extras=extras)


@pytest.mark.parametrize("make", [agent, resources])
@pytest.mark.parametrize("sub_key", ["\ud800", "s" * 2000], ids=["surrogate", "long"])
def test_a_malformed_session_is_refused(make: Any, sub_key: str) -> None:
    with pytest.raises(NameRefusedError):
        make(**{make().sub_key_member: sub_key})


BAD_LINES = {
    "environment": [
        b',"task_digest":"x","boundary":null}', b',"task_digest":null,"boundary":null}',
        b',"task_digest":1,"boundary":null}', b',"task_digest":"D","boundary":[]}',
        b',"task_digest":"D","boundary":"{}"}', b',"task_digest":"D","boundary":false}',
        b',"task_digest":' + b"1" * 5000 + b',"boundary":null}',
        b',"task_digest":"D","boundary":null,"$exact":{"boundary":[["","nan"]]}}',
        b',"task_digest":"D","boundary":"x","$exact":{"boundary":[["","text"]]}}',
    ],
    "agent": [
        b',"session_key":1,"session":1,"boundary":null,"episode":null}',
        b',"session_key":null,"session":1,"boundary":null,"episode":null}',
        b',"session_key":true,"session":1,"boundary":null,"episode":null}',
        b',"session_key":' + b"1" * 5000 + b',"session":1,"boundary":null,"episode":null}',
        (
            b',"session_key":"\xef\xbf\xbd","session":1,"boundary":null,"episode":null,'
            b'"$exact":{"session_key":[["","sur",[0,55296]]]}}'
        ),
    ],
    "resources": [
        b',"session_id":[],"state":null,"owner":null}', b',"session_id":"s","state":1,"owner":1}',
        b',"session_id":"s","state":1,"owner":{}}', b',"session_id":"s","state":1,"owner":[]}',
        b',"session_id":"s","state":1,"owner":' + b"1" * 5000 + b"}",
        b',"session_id":"s","state":1,"owner":null,"$exact":{"owner":[["","nan"]]}}',
        b',"session_id":"s","state":1,"owner":"x","$exact":{"owner":[["","what"]]}}',
    ],
    "model": [
        b',"rows":null,"generation_cuts":[]}', b',"rows":{},"generation_cuts":[]}',
        b',"rows":[],"generation_cuts":"[]"}', b',"rows":[],"generation_cuts":null}',
        b',"rows":[[1,2]],"generation_cuts":[],"$exact":{"rows":[["","map"]]}}',
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "rest"), [(kind, rest) for kind in BAD_LINES for rest in BAD_LINES[kind]]
)
def test_a_line_that_is_not_of_the_schema_is_corrupt(kind: str, rest: bytes) -> None:
    line = OPENING + rest.replace(b'"D"', f'"{DIGEST}"'.encode())
    with pytest.raises(CorruptError):
        read_record(kind, line)


def test_the_error_of_a_line_names_the_record() -> None:
    with pytest.raises(CorruptError) as caught:
        read_record("resources", OPENING + b',"session_id":"s","state":1,"owner":1}')
    assert caught.value.location.key == "r-a1/s"


@pytest.mark.parametrize("kind", [*SCHEMAS, "controller", "else"])
def test_an_unknown_reserved_member_is_of_a_later_release(kind: str) -> None:
    with pytest.raises(UnsupportedError):
        read_record(kind, OPENING + b',"$new":1}')


@pytest.mark.parametrize("kind", ["controller", "Environment", "my.kind"])
def test_a_kind_without_schema_is_passed_through(kind: str) -> None:
    """F25."""
    line = OPENING + b',"sub_key":"x","state":{"a": 1E5},"l":[],"$exact":{"l":[["","tuple"]]}}'
    found = read_record(kind, line)
    assert type(found) is Record
    assert found.key == "r-a1/x"
    assert found.members["l"].value() == ()
    assert found.members["state"].json_bytes() == b'{"a": 1E5}'
    assert line_of(found) == line


@given(json_texts())
def test_a_state_given_as_bytes_stays_those_bytes(data: bytes) -> None:
    """F13: also after a second checkpoint that did not touch it."""
    state = JsonPayload.from_json(data)
    first = read_record("resources", line_of(resources(state=state)))
    second = read_record("resources", line_of(replace(first, owner="other")))  # type: ignore[type-var]
    assert isinstance(second, ResourcesRecord)
    if data == b"null":
        assert second.state is None
    else:
        assert second.state is not None
        assert second.state.json_bytes() == data
