"""From docs/format.md alone: what the records decide is made anew, and compared with the file."""

import json
import re
from collections import OrderedDict
from hashlib import sha256
from itertools import accumulate
from struct import error, pack, unpack, unpack_from
from urllib.parse import quote

import zstandard

EMPTY_FRAME, MAGIC, KIB_128 = bytes.fromhex("28b52ffd240001000099e9d851"), 0x184D2A5C, 128 << 10
BODIES = {b"HEAD": 4096, b"BLCK": 48 + 9 * 65536, b"PAGE": 64 + (4 << 20) + (4 << 12)}
BODIES |= {b"DGST": 64 + 16 * 65536, b"INDX": 64 << 20, b"END.": 48}
SUB_KEYS = {"agent": "session_key", "resources": "session_id", "environment": None, "model": None}
FACTS = ["records", "blocks", "raw_bytes", "index_offset", "index_length"]
# Members, and what their JSON text has to match: the tables of sections 3, 4 and 5.
NAME, COUNT, OBJECT, STRING = "[A-Za-z0-9][A-Za-z0-9._-]*", "[0-9]+", "{.*", r'"([^"\\]|\\.)*"'
ID, HEX, KEYS = f'"(?=.{{1,128}}"){NAME}"', '"[0-9a-f]{64}"', rf'\[("{NAME}"(, )?)*\]'
EPISODE = {"rollout_id": rf'(?!.*-a[1-9][0-9]*"$)"{NAME}"', "attempt": COUNT}
VERSION = {"format": STRING, "major": COUNT, "required_features": rf"\[({STRING}(, )?)*\]"}
OWNER = {"checkpoint_id": ID, "token": '"[0-9a-f]{24}"', "minor": COUNT, "provenance": OBJECT}
CHECKPOINT = OWNER | {"sequence": COUNT, "participants": r"\[{.*", "user_metadata": OBJECT}
CHECKPOINT |= dict.fromkeys(["run_id", "config_digest"], f"null|{STRING}")
CHECKPOINT |= dict.fromkeys(["recovered", "previous"], f"null|{OBJECT}") | {"scope": f"null|{KEYS}"}
EXPECTED = {"kind": ID, "instance": ID, "manifest_bytes": COUNT, "manifest_sha256": HEX}
PARTICIPANT = OWNER | {"objects": r"\[.*", "record_count": COUNT, "role": OBJECT}
PARTICIPANT |= {"ledger_pins": r"\[.*", "schema": STRING, "schema_version": COUNT}
PIN = {"name": rf'"{NAME}[.](tokens|lineage)[.]jsonl"', "size_bytes": COUNT, "sha256": HEX}
POINTER, RUNS, TAG = r'"(/([^/~"\\]|\\.|~[01])*)*"', r"\[\d+(, [1-9]\d*)+\]", "nan|-?inf|tuple"
ENTRIES = rf'\[(\[{POINTER}, ("({TAG}|map|text)"|"(sur|({TAG})\*)", {RUNS})\](, )?)+\]'
LONE = r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"
MISFITS = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OSError, error)


class RefusedError(Exception): ...  # its arguments: a class of section 7, and why


def need(condition, why, code="corrupt"):
    if not condition:
        raise RefusedError(code, why)


def once(pairs):  # the members of an object
    need(len(dict(pairs)) == len(pairs), "a name stands twice")
    return dict(pairs)


def typed(stated, forms, code="corrupt"):  # by their JSON text, so that types count
    for name, form in forms.items():
        need(re.fullmatch(form, json.dumps(stated[name])), f"{name} is not as it has to be", code)
        need(form != COUNT or stated[name] < 1 << 63, f"{name} is too large")
    return stated


def crc32c(data):
    crc = 0xFFFFFFFF
    for bit in range(8 * len(data)):
        crc = crc >> 1 ^ 0x82F63B78 * ((crc ^ data[bit >> 3] >> (bit & 7)) & 1)
    return pack("<I", crc ^ 0xFFFFFFFF)


def varints(value, *more):  # section 2
    low = bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varints(value >> 7)
    return low + varints(*more) if more else low


def inflate(frame, raw):  # section 2.3
    head = zstandard.get_frame_parameters(frame[:18])
    need(head.content_size == raw and head.window_size <= 8 << 20, "a wrong frame header")
    need(head.has_checksum and not head.dict_id, "no content checksum, or a dictionary")
    return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)


class Stream:  # section 2; `short`: the class where it ends early, unless an intact END closes it
    def __init__(self, data, short="torn"):
        last, self.data, self.at = data[-64:].rjust(64), data, 0
        index, length, size = unpack_from("<QQQ", last, 28)
        ends = last[:12] == pack("<II4s", MAGIC, 56, b"END.") and crc32c(last[8:60]) == last[60:]
        self.short = "corrupt" if ends and index + length + 64 == size == len(data) else short
        need(self.take(13) == EMPTY_FRAME, "no stream begins here")
        body = self.piece(b"HEAD")
        major, minor, uuid, codec, window, reserved = unpack_from("<HH16sBBxB", body)
        need(major == 1 and codec == 1 and window <= 23, "version, codec or window", "unsupported")
        names, rest = [], body[24:]
        for _ in range(3):
            names.append(unpack_from(f"{rest[0] + 1}p", rest)[0].decode())
            rest = rest[rest[0] + 1 :]
        typed(names, {0: ID, 1: ID, 2: ID})
        need(not reserved and (minor or not rest), "HEAD is malformed")
        records, rows, places, blocks, total = [], [], {}, 0, 0  # `rows` make the content digest
        while data.startswith(b"BLCK", self.at + 8):
            offset, body, start = self.at, self.piece(b"BLCK"), 0
            count, raw, stored = unpack_from("<IQQ", body, 28)
            bound = raw + (raw >> 8) + (max(KIB_128 - raw, 0) >> 11)
            need(13 <= stored <= bound and raw <= stored // 4 * KIB_128, "an impossible frame")
            need(1 <= count <= 65536 and raw <= (1 << 24 if count > 1 else (1 << 30) + 1), "count")
            *lines, rest = inflate(self.take(stored), raw).split(b"\n")
            made = pack("<16sIQIQQ", uuid, blocks, len(rows), len(lines), raw, stored)
            made += b"".join(varints(len(line)) + crc32c(line) for line in lines)
            need(body == made and not rest, "a block is not what its lines make it")
            blocks, total = blocks + 1, total + raw
            for line in lines:
                records.append(record(line, names[0]))
                key = records[-1]["key"].encode()
                places[key] = (len(rows), offset, self.at - offset, start, len(line))
                rows.append(pack("<Q16s", len(line), sha256(line).digest()))
                start += len(line) + 1
        keys, pages, sections, done = sorted(places), [], [], 0
        while data.startswith(b"PAGE", self.at + 8):
            start, body = self.at, self.piece(b"PAGE")
            own = keys[: min(unpack_from("<I", body, 20)[0], 1024)]
            entries = b"".join(varints(len(key)) + key + varints(*places[key]) for key in own)
            head = pack("<16sIII", uuid, len(pages), len(own), len(entries))
            need(body[:28] == head and inflate(body[28:], len(entries)) == entries, "a wrong page")
            row = varints(len(own[0])) + own[0] + varints(start, self.at - start, len(own))
            pages, keys = [*pages, row], keys[len(own) :]
        while data.startswith(b"DGST", self.at + 8):
            start, body = self.at, self.piece(b"DGST")
            own = rows[done : done + min(unpack_from("<I", body, 24)[0], 65536)]
            made = pack("<16sQI", uuid, done, len(own)) + b"".join(row[8:] for row in own)
            need(own and body == made, "a wrong section of digests")
            sections, done = [*sections, varints(start, self.at - start, len(own))], done + len(own)
        start, digest = self.at, sha256(b"".join(rows)).digest()
        made = pack("<16sQQQ32sII", uuid, done, blocks, total, digest, len(pages), len(sections))
        need(self.piece(b"INDX") == made + b"".join(pages + sections), "a wrong index")
        self.rows, self.facts = rows, (done, blocks, total, start, self.at - start)
        made = pack("<16sQQQQ", uuid, start, self.at - start, self.at + 64, done)
        need(self.piece(b"END.") == made and self.at == len(data), "a wrong END, or more behind it")
        need(not keys and done == len(rows) == len(places), "records without an entry")
        self.reading = {"names": names, "content_digest": digest.hex(), "records": records}

    def take(self, count):
        self.at += count
        need(self.at <= len(self.data), "it ends early", self.short)
        return self.data[self.at - count : self.at]

    def piece(self, tag):  # its body; section 2.1
        magic, size, found = unpack("<II4s", self.take(12))
        need(magic == MAGIC and found == tag and 8 <= size <= 8 + BODIES[tag], "no such piece here")
        content = tag + self.take(size - 4)
        need(crc32c(content[:-4]) == content[-4:], "the crc of a piece is wrong")
        return content[4:-4]


def record(line, kind):  # section 3
    text = line.decode()
    need("\r" not in text and not re.search(LONE, text.replace(r"\\", "__")), "CR, or a surrogate")
    members = json.loads(text, parse_constant=int)  # int refuses NaN and its like
    pairs = once(json.loads(text, object_pairs_hook=tuple))  # keeps names that stand twice
    episode, notes = members.pop("episode_id"), members.pop("$exact", {})
    need(once(pairs.get("$exact", ())).keys() <= members.keys(), "it annotates no member")
    typed(once(pairs["episode_id"]), EPISODE)
    typed(notes, dict.fromkeys(notes, ENTRIES))
    need(not any(name.startswith("$") for name in members), "a reserved name", "unsupported")
    texts = {name: members[name] for name in notes if notes[name] == [["", "text"]]}
    members |= {name: json.loads(texts[name], parse_constant=int) for name in texts}
    for name in notes.keys() - texts.keys():
        restore(members, name, notes[name])
    sub, attempt = members.get(SUB_KEYS.get(kind, "sub_key")), episode["attempt"]
    key = episode["rollout_id"] + f"-a{attempt}" * (attempt > 0)
    key += "" if sub is None else "/" + quote(sub.encode(), safe="").replace("~", "%7E")
    need(len(key) <= 1024 and len(episode) == 2, "a key too long, or not two members")
    return {"key": key, "line": text, "annotations": notes, "values": members, "texts": texts}


def restore(members, name, entries):  # section 4
    for pointer, tag, *arg in entries:
        parent, key = members, name
        for token in pointer.split("/")[1:] + ["0"] * tag.endswith("*"):
            parent, key = parent[key], token.replace("~1", "/").replace("~0", "~")
            need(type(parent) in (list, dict), "a pointer leads into no container")
            if type(parent) is list:
                key = int(re.fullmatch("0|[1-9][0-9]*", key)[0])
        keys = [key]  # with a star, elements of the target: its walk went one step further
        if tag.endswith("*"):
            ends = list(accumulate(arg.pop()))
            keys = (n for a, b in zip(ends[::2], ends[1::2], strict=True) for n in range(a, b))
        for key in keys:
            parent[key] = restored(parent[key], tag.rstrip("*"), *arg)


def restored(stored, tag, codes=()):
    need(type(stored) is {"tuple": list, "map": list, "sur": str}.get(tag, type(None)), "type")
    if tag == "map":  # of lists (only they have list.copy); no later pointer leads into its type
        return OrderedDict(once([*map(list.copy, stored)]))
    if tag == "sur":
        new = dict(zip(codes[::2], codes[1::2], strict=True))
        need(codes[::2] == sorted(new) and {stored[at] for at in new} == {"\ufffd"}, "its indexes")
        need(all(0xD800 <= code <= 0xDFFF for code in new.values()), "a code of no surrogate")
        return "".join(chr(new.get(at, ord(c))) for at, c in enumerate(stored.encode().decode()))
    return tuple(stored) if tag == "tuple" else float(tag)


def load(path, size=0, digest=None):  # sections 1 and 7
    need(path.resolve() == path and (path.is_file() or not path.exists()), "a link, or no file")
    data = path.read_bytes()
    need(len(data) >= size, f"{path} is too short", "torn")
    need(not digest or (len(data), sha256(data).hexdigest()) == (size, digest), "another file")
    return data


def manifest(data, forms):  # section 5, in the order in which it judges
    seal = b',"self":"sha256:%b"}\n' % sha256(data[:-83]).hexdigest().encode()
    need(data[-83:-67] == seal[:16] or data[-3:] == seal[-3:], "it has no seal", "torn")
    need(data[-83:] == seal, "the seal is broken")
    stated = json.loads(data.decode("ascii"), object_pairs_hook=once, parse_constant=int)
    need(stated.get("tombstone") is not True, "given up", "aborted")
    version = [typed(stated, VERSION)[name] for name in VERSION]
    need(version == ["ckptfmt", 1, []], "another version, or features", "unsupported")
    return typed({"ledger_pins": [], **stated}, forms)


def checkpoint(root):  # sections 1, 5 and 7
    begun = [path.name for path in (*root.iterdir(), *root.glob("*/*/manifest.json"))]
    need("checkpoint.json" in begun or "manifest.json" not in begun, "unpublished", "incomplete")
    top, participants = manifest(load(root / "checkpoint.json"), CHECKPOINT), {}
    need(top["scope"] in (None, sorted(set(top["scope"] or []))), "the scope is not sorted")
    names = ["{kind}/{instance}".format_map(typed(row, EXPECTED)) for row in top["participants"]]
    need(len({name.lower() for name in names}) == len(names), "a participant twice")
    for name, row in zip(names, top["participants"], strict=True):
        data = load(root / name / "manifest.json", row["manifest_bytes"], row["manifest_sha256"])
        own, kind, rows, records = manifest(data, PARTICIPANT), row["kind"], [], []
        owner = {"checkpoint_id": top["checkpoint_id"], "kind": kind, "instance": row["instance"]}
        need(own == own | owner, "it is the manifest of another")
        schema = kind if kind in SUB_KEYS else "generic"
        typed(own, {"schema": f'"{schema}"', "schema_version": "1"}, "unsupported")
        pins = [typed(pin, PIN)["name"] for pin in own["ledger_pins"]]
        need(pins == sorted(set(pins)), "pins are not sorted")
        for number, obj in enumerate(own["objects"]):
            path = root / name / f"records-{own['token']}-{number:03}.jsonl.zst"
            typed(obj, PIN | {"name": re.escape(f'"{path.name}"'), "first_ordinal": str(len(rows))})
            stream = Stream(load(path, obj["size_bytes"], obj["sha256"]), "corrupt")
            typed(obj, dict(zip(FACTS, map(str, stream.facts), strict=True)))
            rows, records = rows + stream.rows, records + stream.reading["records"]
        made = {"record_count": len(rows), "content_digest": sha256(b"".join(rows)).hexdigest()}
        made["episode_ids"] = sorted({one["key"].split("/")[0] for one in records})
        need(own == own | made and len({one["key"] for one in records}) == len(rows), "its records")
        participants[name] = {"content_digest": own["content_digest"], "records": records}
    return {"sequence": top["sequence"], "scope": top["scope"], "participants": participants}


def read(folder):  # a stream or a checkpoint
    try:
        file, root = folder / "records.jsonl.zst", (folder / "checkpoint").resolve()
        return Stream(file.read_bytes()).reading if file.is_file() else checkpoint(root)
    except (*MISFITS, zstandard.ZstdError) as misfit:  # no form that this reader expects
        code = "missing" if isinstance(misfit, FileNotFoundError) else "corrupt"
        raise RefusedError(code, repr(misfit)) from misfit
