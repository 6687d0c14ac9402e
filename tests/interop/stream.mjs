// A whole stream, read strictly.  docs/format.md, section 2.

import { createHash } from "node:crypto";
import { ZSTDDecoder } from "zstddec";
import { Refused, need } from "./json.mjs";
import { NAME, checkKey, record, utf8 } from "./records.mjs";

const EMPTY_FRAME = Buffer.from("28b52ffd240001000099e9d851", "hex");
const SKIPPABLE_MAGIC = 0x184d2a5c;
const ZSTD_MAGIC = 0xfd2fb528;
const KIB_128 = 128 << 10;
const MAX_RECORD_BYTES = 1 << 30;
const MAX_BLOCK_RAW_BYTES = 1 << 24;
const MAX_BLOCK_RECORDS = 1 << 16;
const MAX_PAGE_BYTES = 4 << 20;
const PAGE_ENTRIES = 1024;
const DIGESTS_PER_SECTION = 1 << 16;
const MAX_WINDOW_BYTES = 1 << 23;
const MAX_NAME_CHARS = 128;
const END_BYTES = 64;
const BODIES = {
  HEAD: [0, 4096],
  BLCK: [0, 48 + 9 * MAX_BLOCK_RECORDS],
  PAGE: [0, 64 + bound(MAX_PAGE_BYTES)],
  DGST: [0, 64 + 16 * DIGESTS_PER_SECTION],
  INDX: [0, 64 << 20],
  "END.": [48, 48],
};

const decoder = new ZSTDDecoder();
await decoder.init();

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit += 1) byte = (byte >>> 1) ^ (byte & 1 ? 0x82f63b78 : 0);
  return byte;
});

function crc32c(data) {
  let crc = -1;
  for (const byte of data) crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

export function sha256(data) {
  return createHash("sha256").update(data).digest();
}

// The zstd compress bound.
function bound(raw) {
  return raw + Math.floor(raw / 256) + (Math.max(KIB_128 - raw, 0) >> 11);
}

// Fields from front to back.  Numbers of 64 bits that are no safe integers are refused: nothing
// that is there can be so large.
class Fields {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }

  take(count) {
    need(this.at + count <= this.data.length, "a field reaches past its piece");
    this.at += count;
    return this.data.subarray(this.at - count, this.at);
  }

  u8 = () => this.take(1)[0];
  u16 = () => this.take(2).readUInt16LE();
  u32 = () => this.take(4).readUInt32LE();
  u64 = () => safe(this.take(8).readBigUInt64LE());

  varint() {
    let value = 0n;
    for (let place = 0n; place < 70n; place += 7n) {
      const byte = this.u8();
      value |= BigInt(byte & 127) << place;
      if (byte < 128) {
        need((byte > 0 || place === 0n) && value < 1n << 64n, "a varint not in its shortest form");
        return safe(value);
      }
    }
    return need(false, "a varint does not end");
  }

  key() {
    const key = utf8(this.take(this.varint()));
    need(key.length > 0, "an empty key");
    checkKey(key);
    return key;
  }

  end() {
    need(this.at === this.data.length, "bytes behind the last field");
  }
}

function safe(number) {
  need(number <= BigInt(Number.MAX_SAFE_INTEGER), "a number beyond any file");
  return Number(number);
}

// Walks one zstd frame (RFC 8878, section 3.1.1) and judges its header; gives its length.
function frameLength(frame, raw) {
  const fields = new Fields(frame);
  need(fields.u32() === ZSTD_MAGIC, "no zstd frame");
  const descriptor = fields.u8();
  const single = (descriptor & 0x20) !== 0;
  need((descriptor & 0x08) === 0 && (descriptor & 0x04) !== 0, "reserved bit, or no checksum");
  need((descriptor & 0x03) === 0, "a dictionary");
  const sizeFlag = descriptor >> 6;
  let window = raw;
  if (!single) {
    const byte = fields.u8();
    const base = 2 ** (10 + (byte >> 3));
    window = base + (base / 8) * (byte & 7);
  }
  need(single || sizeFlag > 0, "a frame without content size");
  const size = [fields.u8, () => fields.u16() + 256, fields.u32, fields.u64][sizeFlag]();
  need(size === raw && window <= MAX_WINDOW_BYTES, "another content size, or too large a window");
  for (let last = 0; !last; ) {
    const header = fields.u8() | (fields.u16() << 8);
    last = header & 1;
    fields.take(((header >> 1) & 3) === 1 ? 1 : header >> 3);
  }
  fields.take(4);
  return fields.at;
}

function inflate(frame, raw) {
  need(frameLength(frame, raw) === frame.length, "a frame of another length");
  const data = decoder.decode(frame, raw);
  need(data.length === raw, "a frame does not decode to its content size");
  return Buffer.from(data);
}

export class Stream {
  // `whole`: a manifest vouches for the size.
  constructor(data, { whole = false } = {}) {
    this.data = data;
    this.at = 0;
    this.whole = whole;
    this.lines = [];
    this.places = [];
    this.blocks = 0;
    need(this.take(EMPTY_FRAME.length).equals(EMPTY_FRAME), "no stream begins here");
    this.head(this.piece());
    let piece = this.piece();
    for (; piece.tag === "BLCK"; piece = this.piece()) this.block(piece);
    this.index(piece);
  }

  take(count) {
    if (this.at + count > this.data.length) {
      throw new Refused(this.whole || this.endsWell() ? "corrupt" : "torn", "it ends early");
    }
    this.at += count;
    return this.data.subarray(this.at - count, this.at);
  }

  endsWell() {
    const last = this.data.subarray(-END_BYTES);
    if (last.length < END_BYTES || last.readUInt32LE() !== SKIPPABLE_MAGIC) return false;
    if (last.readUInt32LE(4) !== 56 || last.toString("latin1", 8, 12) !== "END.") return false;
    const sealed = crc32c(last.subarray(8, 60)) === last.readUInt32LE(60);
    const [offset, length, stated] = [28, 36, 44].map((at) => last.readBigUInt64LE(at));
    return sealed && stated === BigInt(this.data.length) && offset + length + 64n === stated;
  }

  piece() {
    const offset = this.at;
    const prefix = this.take(12);
    const tag = prefix.toString("latin1", 8);
    const known = prefix.readUInt32LE() === SKIPPABLE_MAGIC && Object.hasOwn(BODIES, tag);
    need(known, "no piece begins here");
    const size = prefix.readUInt32LE(4) - 8;
    need(size >= BODIES[tag][0] && size <= BODIES[tag][1], "a piece of an impossible size");
    const rest = this.take(size + 4);
    const content = Buffer.concat([prefix.subarray(8), rest.subarray(0, size)]);
    need(crc32c(content) === rest.readUInt32LE(size), "the crc of a piece is wrong");
    return { tag, body: new Fields(rest.subarray(0, size)), offset, length: this.at - offset };
  }

  head({ tag, body }) {
    need(tag === "HEAD", "HEAD does not come first");
    const [major, minor] = [body.u16(), body.u16()];
    need(major === 1, "another major version", "unsupported");
    this.uuid = body.take(16);
    const [codec, windowLog] = [body.u8(), body.u8()];
    body.u8();
    const reserved = body.u8();
    need(codec === 1 && windowLog <= 23, "another codec or window", "unsupported");
    need(reserved === 0, "a reserved byte that is not 0");
    this.names = [0, 1, 2].map(() => body.take(body.u8()).toString("latin1"));
    const fit = (name) => NAME.test(name) && name.length <= MAX_NAME_CHARS;
    need(this.names.every(fit), "a malformed name in HEAD");
    if (minor === 0) body.end();
  }

  same(uuid) {
    need(this.uuid.equals(uuid), "a piece of another stream");
  }

  block({ body, offset, length }) {
    this.same(body.take(16));
    const [number, first, count] = [body.u32(), body.u64(), body.u32()];
    const [raw, stored] = [body.u64(), body.u64()];
    need(count >= 1 && count <= MAX_BLOCK_RECORDS, "an impossible number of records");
    const rows = Array.from({ length: count }, () => [body.varint(), body.u32()]);
    body.end();
    const fits = rows.every(([size]) => size >= 1 && size <= MAX_RECORD_BYTES);
    need(fits, "a line is empty or too long");
    need(rows.reduce((sum, [size]) => sum + size + 1, 0) === raw, "the lengths do not sum up");
    need(count === 1 || raw <= MAX_BLOCK_RAW_BYTES, "a block is too large");
    const possible = stored >= EMPTY_FRAME.length && stored <= bound(raw);
    need(possible && raw <= Math.floor(stored / 4) * KIB_128, "an impossible frame");
    need(number === this.blocks && first === this.lines.length, "a block out of sequence");
    this.blocks += 1;
    const block = inflate(this.take(stored), raw);
    let at = 0;
    for (const [size, crc] of rows) {
      const line = block.subarray(at, at + size);
      need(crc32c(line) === crc, "the crc of a line is wrong");
      need(block[at + size] === 10, "a line that LF does not end");
      need(!line.includes(10) && !line.includes(13), "a line break inside a line");
      this.places.push([this.lines.length, offset, length + stored, at, size]);
      this.lines.push(line);
      at += size + 1;
    }
  }

  index(piece) {
    const [pages, sections] = [[], []];
    const entries = new Map();
    const digests = this.lines.map((line) => sha256(line).subarray(0, 16));
    let last = Buffer.alloc(0);
    for (; piece.tag === "PAGE"; piece = this.piece()) {
      for (const [key, ...place] of this.page(piece, pages)) {
        const bytes = Buffer.from(key);
        need(Buffer.compare(last, bytes) < 0, "keys stand twice, or do not ascend");
        need(!entries.has(place[0]), "a record has two entries");
        entries.set(place[0], [key, ...place]);
        last = bytes;
      }
    }
    let done = 0;
    for (; piece.tag === "DGST"; piece = this.piece()) {
      const { body, offset, length } = piece;
      this.same(body.take(16));
      const [first, count] = [body.u64(), body.u32()];
      need(first === done && count >= 1 && count <= DIGESTS_PER_SECTION, "an impossible section");
      for (const digest of digests.slice(first, first + count)) {
        need(digest.equals(body.take(16)), "a digest is wrong");
      }
      body.end();
      done += count;
      sections.push([offset, length, count]);
    }
    this.directory(piece, pages, sections, digests);
    need(entries.size === this.lines.length, "a record has no entry");
    this.keys = this.places.map((place) => {
      const [key, ...stated] = entries.get(place[0]) ?? need(false, "a record has no entry");
      need(stated.join() === place.join(), "an entry is wrong");
      return key;
    });
  }

  page({ body, offset, length }, pages) {
    this.same(body.take(16));
    const [number, count, raw] = [body.u32(), body.u32(), body.u32()];
    need(number === pages.length, "a page out of sequence");
    need(count >= 1 && count <= PAGE_ENTRIES && raw <= MAX_PAGE_BYTES, "an impossible page");
    const fields = new Fields(inflate(body.take(body.data.length - 28), raw));
    const numbers = () => [0, 1, 2, 3, 4].map(() => fields.varint());
    const rows = Array.from({ length: count }, () => [fields.key(), ...numbers()]);
    fields.end();
    pages.push([rows[0][0], offset, length, count]);
    return rows;
  }

  directory({ tag, body, offset, length }, pages, sections, digests) {
    need(tag === "INDX", "another piece where INDX belongs");
    this.same(body.take(16));
    const raw = this.lines.reduce((sum, line) => sum + line.length + 1, 0);
    this.facts = [this.lines.length, this.blocks, raw, offset, length];
    const totals = [body.u64(), body.u64(), body.u64()];
    need(totals.join() === this.facts.slice(0, 3).join(), "the totals are wrong");
    this.content = contentRows(this.lines, digests);
    need(body.take(32).equals(sha256(this.content)), "the content digest is wrong");
    const counts = [body.u32(), body.u32()];
    need(counts.join() === [pages.length, sections.length].join(), "the directory is wrong");
    for (const [key, ...numbers] of pages) {
      need(body.key() === key, "the directory is wrong");
      for (const number of numbers) need(body.varint() === number, "the directory is wrong");
    }
    for (const number of sections.flat()) need(body.varint() === number, "the directory is wrong");
    body.end();
    this.end(this.piece(), offset, length);
  }

  end({ tag, body }, offset, length) {
    need(tag === "END.", "another piece where END belongs");
    this.same(body.take(16));
    const stated = [body.u64(), body.u64(), body.u64(), body.u64()];
    need(this.at === this.data.length, "bytes behind END");
    need(stated.join() === [offset, length, this.at, this.lines.length].join(), "END is wrong");
  }

  records() {
    return this.lines.map((line, ordinal) => {
      const found = record(line, this.names[0]);
      need(found.key === this.keys[ordinal], "the index names another key");
      return found;
    });
  }
}

export function contentRows(lines, digests) {
  const rows = lines.map((line, ordinal) => {
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(line.length));
    return Buffer.concat([length, digests[ordinal]]);
  });
  return Buffer.concat(rows);
}
