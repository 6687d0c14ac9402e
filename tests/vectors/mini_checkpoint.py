"""The directory and the manifests round the mini reader's streams (sections 1, 5 and 7).

Written from docs/format.md alone, too.  What records and files decide is made anew and compared
with what the manifests state, by its JSON text, so that types count.
"""

import json
import re
import stat
from hashlib import sha256
from struct import error

import zstandard

from tests.vectors.mini_reader import (
    ATTEMPT,
    NAME,
    SUB_KEYS,
    RefusedError,
    Stream,
    content_digest,
    need,
    parse,
)

MISFITS = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
MISFITS += (error, zstandard.ZstdError)
TOKEN = "[0-9a-f]{24}"


def is_name(name):
    need(re.fullmatch(NAME, name) and len(name) <= 128, "a malformed name")
    return name


def small(root, *names):
    """The bytes of a file; no symbolic link below ``root`` is followed."""
    path = root
    for name in names:
        path, kind = path / name, stat.S_ISREG if name is names[-1] else stat.S_ISDIR
        try:
            need(kind(path.lstat().st_mode), f"{path} is a link or of another kind")
        except FileNotFoundError:
            raise RefusedError("missing", f"there is no {path}") from None
    return path.read_bytes()


def manifest(data, names):
    """Section 5: the members, and that the file is what it was; ``names``: who has to be in it."""
    need(data[-83:-67] == b',"self":"sha256:' or data[-3:] == b'"}\n', "it has no seal", "torn")
    seal = sha256(data[:-83]).hexdigest().encode()
    need(data[-83:] == b',"self":"sha256:' + seal + b'"}\n', "the seal is broken")
    stated, twice = parse(data.decode("ascii"))
    need(not twice, "a name twice")
    need(stated.get("tombstone") is not True, "given up", "aborted")
    version = (stated["format"], stated["major"], stated["required_features"])
    need(all(type(name) is str for name in version[2]), "a feature is no string")
    need(version == ("ckptfmt", 1, []), "version or features", "unsupported")
    equal(stated, {"major": 1, **names})
    need(re.fullmatch(TOKEN, stated["token"]) and is_name(stated["checkpoint_id"]), "who wrote it")
    return stated


def equal(stated, found):
    """Whether a manifest says what was found, types included."""
    own = {name: stated[name] for name in found}
    need(json.dumps(own) == json.dumps(found), f"{own} is not {found}")


def capture_keys(listed):
    need(listed == sorted(set(listed)), "capture keys are not sorted")
    return [is_name((re.fullmatch(ATTEMPT, key) or (0, key))[1]) for key in listed]


def read_checkpoint(root):
    """Sections 5 and 7."""
    try:
        top = manifest(small(root, "checkpoint.json"), {})
    except RefusedError as refused:
        written = refused.args[0] == "missing" and any(root.glob("*/*/manifest.json"))
        raise RefusedError("incomplete", "never published") if written else refused from None
    counts = [top["sequence"], *(item["manifest_bytes"] for item in top["participants"])]
    need(all(type(count) is int and 0 <= count < 1 << 63 for count in counts), "no count")
    need(type(top["user_metadata"]) is dict, "metadata that is no object")
    need(type(top["recovered"]) in (dict, type(None)), "recovered is no object")
    need(top["participants"], "no participants")
    need(top["scope"] is None or capture_keys(top["scope"]) is not None, "a wrong scope")
    named = [(is_name(item["kind"]), is_name(item["instance"])) for item in top["participants"]]
    need(len({"/".join(name).lower() for name in named}) == len(named), "a participant twice")
    return {
        "sequence": top["sequence"],
        "scope": top["scope"],
        "participants": {
            "/".join(name): participant(root, name, item, top["checkpoint_id"])
            for name, item in zip(named, top["participants"], strict=True)
        },
    }


def participant(root, name, item, checkpoint_id):
    data, lines, records = small(root, *name, "manifest.json"), [], []
    need(len(data) >= item["manifest_bytes"], "the manifest is too short", "torn")
    equal(item, {"manifest_bytes": len(data), "manifest_sha256": sha256(data).hexdigest()})
    names = {"kind": name[0], "instance": name[1], "checkpoint_id": checkpoint_id}
    own, schema = manifest(data, names), name[0] if name[0] in SUB_KEYS else "generic"
    known = json.dumps([own["schema"], own["schema_version"]]) == json.dumps([schema, 1])
    need(known, "another schema", "unsupported")
    need(type(own["role"]) is dict, "a role that is no object")
    check_pins(own.get("ledger_pins", []))
    for number, stated in enumerate(own["objects"]):
        file = f"records-{own['token']}-{number:03}.jsonl.zst"
        equal(stated, {"name": file, "first_ordinal": len(lines)})
        data, size = small(root, *name, file), stated["size_bytes"]
        need(type(size) is int and size >= 0, "a size that is no count")
        need(len(data) >= size, "the object is too short", "torn")
        equal(stated, {"size_bytes": len(data), "sha256": sha256(data).hexdigest()})
        stream = Stream(data, whole=True)
        facts = ["records", "blocks", "raw_bytes", "index_offset", "index_length"]
        equal(stated, dict(zip(facts, stream.facts, strict=True)))
        lines, records = lines + stream.lines, records + stream.records
    found = {"record_count": len(lines), "content_digest": content_digest(lines).hex()}
    equal(own, found | {"episode_ids": sorted({one["key"].split("/")[0] for one in records})})
    need(len({record["key"] for record in records}) == len(records), "two records have one key")
    return {"content_digest": own["content_digest"], "records": records}


def check_pins(pins):
    names = [pin["name"] for pin in pins]
    need(names == sorted(set(names)), "pins are not sorted")
    for pin in pins:
        capture_keys([re.fullmatch("(.*)[.](tokens|lineage)[.]jsonl", pin["name"])[1]])
        need(type(pin["size_bytes"]) is int and pin["size_bytes"] >= 0, "a size that is no count")
        need(re.fullmatch("[0-9a-f]{64}", pin["sha256"]), "a malformed digest")


def read(folder):
    """What a case holds: of a stream HEAD's names and minor version, of all the records."""
    try:
        if (folder / "checkpoint").is_dir():
            return read_checkpoint(folder / "checkpoint")
        stream = Stream((folder / "records.jsonl.zst").read_bytes())
        digest = content_digest(stream.lines).hex()
        return {"names": stream.names, "content_digest": digest, "records": stream.records}
    except MISFITS as misfit:
        raise RefusedError("corrupt", f"something does not fit: {misfit!r}") from misfit
