// Record lines: members, annotations, keys.  docs/format.md, section 3.

import { Members, isWellFormed, need, parse } from "./json.mjs";
import { Text, restore, spell } from "./exact.mjs";

export const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;
const ATTEMPT = /-a[1-9][0-9]*$/;
const SUB_KEYS = { environment: null, agent: "session_key", resources: "session_id", model: null };
const MAX_KEY_BYTES = 1024;

export const KINDS_WITH_SCHEMA = Object.keys(SUB_KEYS);

export function utf8(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return need(false, "not UTF-8");
  }
}

export function record(bytes, kind) {
  const line = utf8(bytes);
  const members = parse(line, { maxDepth: 500 });
  need(members instanceof Members && !members.twice, "no object, or two members of one name");
  const notes = members.map.get("$exact") ?? new Members([]);
  const episode = members.map.get("episode_id");
  for (const name of ["$exact", "episode_id"]) members.map.delete(name);
  for (const object of [notes, episode]) {
    need(object instanceof Members && !object.twice, "no object, or two members of one name");
  }
  const reserved = [...members.map.keys()].some((name) => name.startsWith("$"));
  need(!reserved, "a reserved member that is not known", "unsupported");
  for (const name of notes.map.keys()) need(members.map.has(name), "annotations of no member");
  const annotations = Object.fromEntries([...notes.map].map(([name, own]) => [name, plain(own)]));

  const values = new Map();
  for (const [name, value] of members.map) {
    values.set(name, notes.map.has(name) ? restore(value, notes.map.get(name)) : value);
  }
  const decoded = (value) => (value instanceof Text ? parse(value.json, { lone: true }) : value);
  const texts = [...values].filter(([, value]) => value instanceof Text);
  const sub = subKey(kind, values, decoded);
  return {
    key: captureKey(episode) + (sub === null ? "" : sub),
    line,
    annotations,
    values: Object.fromEntries([...values].map(([name, v]) => [name, spell(decoded(v))])),
    texts: Object.fromEntries(texts.map(([name, text]) => [name, text.json])),
  };
}

function captureKey(episode) {
  const [rollout, attempt] = ["rollout_id", "attempt"].map((name) => episode.map.get(name));
  need(episode.map.size === 2, "episode_id has other members");
  need(typeof rollout === "string" && NAME.test(rollout), "a malformed rollout id");
  need(!ATTEMPT.test(rollout), "a rollout id that ends as an attempt");
  need(typeof attempt === "bigint" && attempt >= 0n && attempt < 1n << 63n, "a malformed attempt");
  return attempt === 0n ? rollout : `${rollout}-a${attempt}`;
}

function subKey(kind, values, decoded) {
  const member = kind in SUB_KEYS ? SUB_KEYS[kind] : "sub_key";
  const value = member === null ? null : decoded(values.get(member) ?? null);
  if (value === null) return null;
  need(typeof value === "string" && isWellFormed(value), "a sub-key that is no Unicode text");
  const encoded = Array.from(new TextEncoder().encode(value), (byte) => {
    const character = String.fromCharCode(byte);
    const hex = byte.toString(16).toUpperCase().padStart(2, "0");
    return /[A-Za-z0-9._-]/.test(character) ? character : `%${hex}`;
  });
  return `/${encoded.join("")}`;
}

export function checkKey(key) {
  need(new TextEncoder().encode(key).length <= MAX_KEY_BYTES, "a key is too long");
}

// Annotations as plain JSON: their integers are small, or were refused before.
function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  return typeof value === "bigint" ? Number(value) : value;
}
