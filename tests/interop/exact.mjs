// Exact values: annotations applied to stored JSON, and values spelled out.  Section 4.

import { Float, Members, isWellFormed, need, parse } from "./json.mjs";

const POINTER = /^(?:\/(?:[^/~]|~[01])*)*$/u;
const INDEX = /^(?:0|[1-9][0-9]{0,17})$/;
const TAG = /^(?:(nan|inf|-inf|tuple)(\*?)|map|sur|text)$/;
const FLOATS = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const REPLACEMENT = 0xfffd;

class Tuple {
  constructor(items) {
    this.items = items;
  }
}

class Pairs {
  constructor(pairs) {
    this.pairs = pairs;
  }
}

// Text with lone surrogates: code points, since UTF-16 would join two that stand side by side.
class Codes {
  constructor(codes) {
    this.codes = codes;
  }
}

export class Text {
  constructor(json) {
    this.json = json;
  }
}

export function restore(value, entries) {
  need(Array.isArray(entries) && entries.length, "annotations are no list of entries");
  const holder = [value];
  for (const entry of entries) {
    need(Array.isArray(entry) && [2, 3].includes(entry.length), "a malformed entry");
    const [pointer, tag, arg] = entry;
    need(typeof pointer === "string" && POINTER.test(pointer), "a malformed pointer");
    const [, plain, star] = (typeof tag === "string" && TAG.exec(tag)) || need(false, "unknown tag");
    need((entry.length === 3) === (star === "*" || tag === "sur"), "an argument too many or few");
    if (tag === "text") {
      need(entries.length === 1 && pointer === "" && typeof value === "string", "text not alone");
      parse(value, { lone: true });
      return new Text(value);
    }
    const place = find(holder, pointer);
    if (star === "*") {
      const array = place.get();
      need(Array.isArray(array), "the target is no array");
      for (const index of runs(arg, array.length)) array[index] = restored(array[index], plain);
    } else {
      place.set(restored(place.get(), tag, arg));
    }
  }
  return holder[0];
}

function find(holder, pointer) {
  let place = elementOf(holder, "0");
  for (const token of pointer.split("/").slice(1)) {
    place = elementOf(place.get(), token.replaceAll("~1", "/").replaceAll("~0", "~"));
  }
  return place;
}

function elementOf(parent, token) {
  if (Array.isArray(parent)) {
    need(INDEX.test(token) && Number(token) < parent.length, "an index that is not there");
    return { get: () => parent[token], set: (made) => (parent[token] = made) };
  }
  need(parent instanceof Members && parent.map.has(token), "a pointer that leads nowhere");
  return { get: () => parent.map.get(token), set: (made) => parent.map.set(token, made) };
}

function numbers(arg) {
  need(Array.isArray(arg) && arg.length && arg.length % 2 === 0, "an argument that is not pairs");
  need(arg.every((number) => typeof number === "bigint" && number >= 0n), "no natural numbers");
  return arg;
}

function* runs(arg, length) {
  let end = 0n;
  for (let place = 0; place < numbers(arg).length; place += 2) {
    const [gap, count] = [arg[place], arg[place + 1]];
    need(count > 0n && (gap > 0n || place === 0), "runs are empty or touch");
    const start = end + gap;
    end = start + count;
    need(end <= BigInt(length), "runs reach past the array");
    for (let index = start; index < end; index += 1n) yield Number(index);
  }
}

function restored(stored, tag, arg) {
  if (tag in FLOATS) {
    need(stored === null, "the target is not null");
    return new Float(FLOATS[tag]);
  }
  if (tag === "sur") return surrogates(stored, arg);
  need(Array.isArray(stored), "the target is no array");
  if (tag === "tuple") return new Tuple(stored);
  need(stored.every((pair) => Array.isArray(pair) && pair.length === 2), "no array of pairs");
  const keys = stored.map(([key]) => identity(key));
  need(new Set(keys).size === keys.length, "two keys are equal");
  return new Pairs(stored);
}

function surrogates(stored, arg) {
  need(typeof stored === "string", "the target is no string");
  const codes = Array.from(stored, (character) => character.codePointAt(0));
  let last = -1n;
  for (let place = 0; place < numbers(arg).length; place += 2) {
    const [index, code] = [arg[place], arg[place + 1]];
    need(index > last && index < BigInt(codes.length), "an index out of order or range");
    need(code >= 0xd800n && code <= 0xdfffn, "no surrogate");
    need(codes[index] === REPLACEMENT, "no surrogate belongs there");
    codes[index] = Number(code);
    last = index;
  }
  return new Codes(codes);
}

// Two keys are equal where Python says so: numbers by value, booleans are 0 and 1, no two NaN are.
let nans = 0;

function identity(key) {
  if (key === true) return "1";
  if (key === false) return "0";
  if (typeof key === "bigint" || key === null) return String(key);
  if (key instanceof Float) {
    if (Number.isNaN(key.value)) return `nan ${(nans += 1)}`;
    return Number.isInteger(key.value) ? String(BigInt(key.value)) : `float ${key.value}`;
  }
  if (typeof key === "string" || key instanceof Codes) return `text ${spell(key)}`;
  need(key instanceof Tuple, "a key that cannot be one");
  return `(${key.items.map(identity).join()},)`;
}

// As tests/vectors/spelling.py: types, order and bits.
export function spell(value) {
  if (value === null || typeof value === "boolean" || typeof value === "bigint") return `${value}`;
  if (typeof value === "string") return ascii(value);
  if (value instanceof Codes) return `u[${value.codes.join()}]`;
  if (value instanceof Float) return float(value.value);
  if (Array.isArray(value)) return `[${value.map(spell).join()}]`;
  if (value instanceof Tuple) return `(${value.items.map(spell).join()})`;
  const pairs = value instanceof Pairs ? value.pairs : [...value.map];
  return `{${pairs.map(([key, item]) => `${spell(key)}:${spell(item)}`).join()}}`;
}

function ascii(text) {
  const hex = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  if (!isWellFormed(text)) return spell(new Codes(Array.from(text, (c) => c.codePointAt(0))));
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, hex);
}

function float(value) {
  if (Number.isNaN(value)) return "nan";
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  return `0x${view.getBigUint64(0).toString(16).padStart(16, "0")}`;
}
