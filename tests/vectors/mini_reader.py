"""Reads streams and records strictly, from docs/format.md alone; any error is a refusal."""

import json
import re
from hashlib import sha256
from itertools import accumulate, pairwise
from struct import pack, unpack, unpack_from
from urllib.parse import quote

import zstandard

EMPTY_FRAME, MAGIC, KIB_128 = bytes.fromhex("28b52ffd240001000099e9d851"), 0x184D2A5C, 128 << 10
BODIES = {b"HEAD": 4096, b"BLCK": 48 + 9 * 65536, b"PAGE": 64 + (4 << 20) + (4 << 12)}
BODIES |= {b"DGST": 64 + 16 * 65536, b"INDX": 64 << 20, b"END.": 48}
TABLE = list(range(256))
for _ in range(8):
    TABLE = [byte >> 1 ^ (0x82F63B78 if byte & 1 else 0) for byte in TABLE]
SUB_KEYS = {"agent": "session_key", "resources": "session_id", "environment": "", "model": ""}
NAME, ATTEMPT = "[A-Za-z0-9][A-Za-z0-9._-]*", "(.*)-a([1-9][0-9]*)"
POINTER, INDEX = r"(?:/(?:[^/~]|~[01])*)*", "0|[1-9][0-9]{0,17}"
PAIR, LONE = r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F])", "[\ud800-\udfff]"
TAGS = re.compile(r"(?P<plain>nan|inf|-inf|tuple)(?P<star>\*?)|map|sur")


class RefusedError(Exception):
    """The error class, and why."""


class Text(str):
    __slots__ = ()


class Map(dict):
    """A dict that was stored as pairs: no later pointer may lead into it."""


def need(condition, why, code="corrupt"):
    if not condition:
        raise RefusedError(code, why)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def read_varint(data, at, value=0, place=0):
    need((data[at] or not place) and (place < 63 or data[at] < 2), "a varint is too long")
    value |= (data[at] & 127) << place
    return (value, at + 1) if data[at] < 128 else read_varint(data, at + 1, value, place + 7)


def inflate(frame, raw):
    head = zstandard.get_frame_parameters(frame[:18])
    need(head.content_size == raw and head.window_size <= 8 << 20, "a wrong frame header")
    need(head.has_checksum and not head.dict_id, "no content checksum, or a dictionary")
    return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)


class Stream:
    """Section 2.  ``whole``: a manifest vouches for the size."""

    def __init__(self, data, *, whole=False):
        self.data, self.at, self.whole = data, 0, whole
        self.blocks, self.lines, self.places, self.records = 0, [], [], []
        need(self.take(13) == EMPTY_FRAME, "no stream begins here")
        body = self.piece(b"HEAD")
        major, minor, self.uuid, codec, window, _, reserved = unpack_from("<HH16sBBbB", body)
        need(major == 1 and codec == 1 and window <= 23, "version, codec or window", "unsupported")
        at, self.names = 24, []
        for _ in range(3):
            end = at + 1 + body[at]
            self.names, at = [*self.names, body[at + 1 : end].decode()], end
        need(all(re.fullmatch(NAME, name) and len(name) <= 128 for name in self.names), "a name")
        need(at <= len(body) and not reserved and (minor or at == len(body)), "HEAD is malformed")
        while self.comes(b"BLCK"):
            self.block(self.at, self.piece(b"BLCK"))
        self.index()

    def take(self, count):
        if self.at + count > len(self.data):
            last = self.data[-64:].rjust(64)
            offset, length, stated = unpack_from("<QQQ", last, 28)
            ends = last[:12] == pack("<II4s", MAGIC, 56, b"END.")
            ends = ends and crc32c(last[8:60]) == last[60:]
            ends = ends and offset + length + 64 == stated == len(self.data)
            raise RefusedError("corrupt" if self.whole or ends else "torn", "it ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def comes(self, tag):
        return self.data[self.at + 8 : self.at + 12] == tag

    def piece(self, tag, wanted=None):
        magic, size, found = unpack("<II4s", self.take(12))
        need(magic == MAGIC and found == tag, "another piece belongs here, or none")
        need(8 <= size <= 8 + BODIES[tag], "a piece has an impossible size")
        content = tag + self.take(size - 4)
        need(crc32c(content[:-4]) == content[-4:], "the crc of a piece is wrong")
        need(wanted in (None, content[4:-4]), "a piece is not what the records make it")
        return content[4:-4]

    def block(self, offset, body):
        *place, count, raw, stored = unpack_from("<16sIQIQQ", body)
        at, rows, start = 48, [], 0
        for _ in range(count):
            length, at = read_varint(body, at)
            rows, at = [*rows, (length, body[at : at + 4])], at + 4
        need(at == len(body) and all(1 <= n <= 1 << 30 for n, _ in rows), "a line's length")
        most = 65536 if raw <= 1 << 24 else 1
        need(sum(n + 1 for n, _ in rows) == raw and 1 <= count <= most, "lengths or their sum")
        bound = raw + (raw >> 8) + (max(KIB_128 - raw, 0) >> 11)
        need(13 <= stored <= bound and raw <= stored // 4 * KIB_128, "an impossible frame")
        need(place == [self.uuid, self.blocks, len(self.lines)], "of another stream or place")
        block, self.blocks = inflate(self.take(stored), raw), self.blocks + 1
        for length, crc in rows:
            line, end = block[start : start + length], start + length + 1
            need(crc32c(line) == crc, "the crc of a line is wrong")
            need(block[end - 1] == 10 and not {10, 13} & set(line), "a line break is wrong")
            self.places.append((len(self.lines), offset, self.at - offset, start, length))
            self.records.append(record(line, self.names[0]))
            self.lines, start = [*self.lines, line], end

    def index(self):
        rows, pages, sections, listed, done = {}, [], [], 0, 0
        for found, place in zip(self.records, self.places, strict=True):
            key = found["key"].encode()
            need(key not in rows, "two records have one key")
            rows[key] = varint(len(key)) + key + b"".join(map(varint, place))
        keys = sorted(rows)
        while self.comes(b"PAGE"):
            start, body, own = self.at, self.piece(b"PAGE"), keys[listed:]
            *begin, count, raw = unpack_from("<16sIII", body)
            need(begin == [self.uuid, len(pages)] and 1 <= count <= 1024, "a wrong page")
            entries = b"".join(rows[key] for key in own[:count])
            need(raw <= 4 << 20 and inflate(body[28:], raw) == entries, "the entries are wrong")
            place = b"".join(map(varint, (start, self.at - start, count)))
            pages.append(varint(len(own[0])) + own[0] + place)
            listed += count
        while self.comes(b"DGST"):
            start, body = self.at, self.piece(b"DGST")
            *begin, count = unpack_from("<16sQI", body)
            own = [sha256(line).digest()[:16] for line in self.lines[done : done + count]]
            need(begin == [self.uuid, done] and 1 <= count <= 65536, "a wrong section")
            need(body[28:] == b"".join(own) and len(own) == count, "a wrong digest")
            sections.append(b"".join(map(varint, [start, self.at - start, count])))
            done += count
        self.facts = [done, self.blocks, sum(len(line) + 1 for line in self.lines), self.at]
        totals = pack("<16sQQQ", self.uuid, *self.facts[:3]) + content_digest(self.lines)
        totals += pack("<II", len(pages), len(sections)) + b"".join(pages + sections)
        self.piece(b"INDX", totals)
        self.facts.append(self.at - self.facts[3])
        self.piece(b"END.", pack("<16sQQQQ", self.uuid, *self.facts[3:], self.at + 64, done))
        need(listed == done == len(keys) and self.at == len(self.data), "something is left over")


def content_digest(lines):
    rows = (pack("<Q", len(line)) + sha256(line).digest()[:16] for line in lines)
    return sha256(b"".join(rows)).digest()


def parse(text):
    twice = []

    def hook(pairs):
        made = dict(pairs)
        twice.extend([made] * (len(made) != len(pairs)))
        return made

    return json.loads(text, object_pairs_hook=hook, parse_constant=int), twice


def record(line, kind):
    (members, twice), text = parse(line.decode()), line.decode()
    lone = (found[1] for found in re.finditer(PAIR, text.replace(r"\\", "")))
    notes, episode = members.pop("$exact", {}), members.pop("episode_id")
    inner = (members, notes, episode)
    need(not any(made is own for made in twice for own in inner), "a name twice")
    need(not any(lone) and all(type(own) is dict for own in inner), "no object, or not Unicode")
    need(all(type(notes[name]) is list and notes[name] for name in notes), "no list of entries")
    need(notes.keys() <= members.keys() and len(episode) == 2, "members are missing or too many")
    rollout, attempt = episode["rollout_id"], episode["attempt"]
    need(re.fullmatch(NAME, rollout) and not re.fullmatch(ATTEMPT, rollout), "a wrong rollout id")
    need(type(attempt) is int and 0 <= attempt < 1 << 63, "a wrong attempt")
    need(all(not name.startswith("$") for name in members), "a reserved name", "unsupported")
    values = {name: restore(value, notes.get(name, [])) for name, value in members.items()}
    sub, key = values.get(SUB_KEYS.get(kind, "sub_key")), rollout + f"-a{attempt}" * (attempt > 0)
    if sub is not None:
        sub = parse(sub)[0] if type(sub) is Text else sub
        key += "/" + quote(sub.encode(), safe="").replace("~", "%7E")
    need(len(key) <= 1024, "a key is too long")
    return {"key": key, "line": text, "annotations": notes, "values": values}


def restore(value, entries):
    if entries == [["", "text"]] and type(value) is str:
        return parse(value) and Text(value)
    holder = [value]
    for pointer, tag, *arg in entries:
        need(re.fullmatch(POINTER, pointer) and len(arg) < 2, "a malformed entry")
        match = TAGS.fullmatch(tag)
        starred = match["star"] == "*"
        need(len(arg) == (starred or tag == "sur"), "an argument too many or too few")
        parent, key = holder, 0
        for token in pointer.split("/")[1:]:
            parent, key = parent[key], token.replace("~1", "/").replace("~0", "~")
            need(type(parent) in (list, dict), "a pointer leads into no container")
            if type(parent) is list:
                key = int(re.fullmatch(INDEX, key)[0])
        if not starred:
            parent[key] = restored(parent[key], tag, *arg)
            continue
        need(type(parent[key]) is list, "the target is no array")
        for index in runs(arg[0], len(parent[key])):
            parent[key][index] = restored(parent[key][index], match["plain"])
    return holder[0]


def runs(arg, length):
    need(type(arg) is list and arg and sum(arg) <= length, "runs reach past the array")
    need(all(type(n) is int and n >= (at > 0) for at, n in enumerate(arg)), "runs touch")
    ends = list(accumulate(arg))
    return [n for gap, end in zip(ends[::2], ends[1::2], strict=True) for n in range(gap, end)]


def restored(stored, tag, codes=None):
    if tag in ("nan", "inf", "-inf"):
        need(stored is None, "the target is not null")
        return float(tag)
    need(type(stored) is (str if tag == "sur" else list), "the target has another type")
    if tag == "tuple":
        return tuple(stored)
    if tag == "map":
        made = Map(stored) if all(type(pair) is list for pair in stored) else {}
        need(len(made) == len(stored), "no pairs, or two keys are equal")
        return made
    need(codes and not re.search(LONE, stored), "no codes, or the target holds surrogates")
    need(type(codes) is list and all(type(n) is int for n in codes), "malformed codes")
    need(all(a < b for a, b in pairwise([-1, *codes[::2]])), "indexes that do not ascend")
    chars = list(stored)
    for index, code in zip(codes[::2], codes[1::2], strict=True):
        need(chars[index] == "\ufffd" and 0xD800 <= code <= 0xDFFF, "no surrogate belongs there")
        chars[index] = chr(code)
    return "".join(chars)
