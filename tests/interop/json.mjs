// JSON without loss: integers of any length, floats apart from them, objects with their members
// in order and twice where they stand twice, and how deep it is.  docs/format.md, section 4.

export class Refused extends Error {
  constructor(code, why) {
    super(why);
    this.code = code;
  }
}

export function need(condition, why, code = "corrupt") {
  if (!condition) throw new Refused(code, why);
}

export function isWellFormed(text) {
  return !/\p{Surrogate}/u.test(text);
}

// A float; integers are BigInt.
export class Float {
  constructor(value) {
    this.value = value;
  }
}

// `pairs` in order; `twice` tells whether two have one name.  A later one wins, in the first's place.
export class Members {
  constructor(pairs) {
    this.map = new Map(pairs);
    this.twice = this.map.size !== pairs.length;
  }
}

const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const SPACE = /[ \t\n\r]*/y;
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

// `lone`: whether escapes of surrogates without partner are permitted.
export function parse(text, { lone = false, maxDepth = 500 } = {}) {
  let at = 0;

  function match(pattern) {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) at = pattern.lastIndex;
    return found;
  }

  function expect(word) {
    need(text.startsWith(word, at), `${word} is not at ${at}`);
    at += word.length;
  }

  function string() {
    expect('"');
    let out = "";
    for (;;) {
      out += match(PLAIN)[0];
      const mark = text[at];
      need(mark === '"' || mark === "\\", "a string does not end, or holds a control character");
      at += 1;
      if (mark === '"') break;
      const escape = text[at];
      at += 1;
      if (escape === "u") {
        const digits = text.slice(at, at + 4);
        need(/^[0-9a-fA-F]{4}$/.test(digits), "a malformed escape");
        out += String.fromCharCode(parseInt(digits, 16));
        at += 4;
      } else {
        need(Object.hasOwn(ESCAPES, escape), "an unknown escape");
        out += ESCAPES[escape];
      }
    }
    need(lone || isWellFormed(out), "a surrogate without partner");
    return out;
  }

  function items(closing, item) {
    const found = [];
    match(SPACE);
    if (text[at] === closing) {
      at += 1;
      return found;
    }
    for (;;) {
      found.push(item());
      match(SPACE);
      if (text[at] === closing) break;
      expect(",");
    }
    at += 1;
    return found;
  }

  function member(depth) {
    match(SPACE);
    const name = string();
    match(SPACE);
    expect(":");
    return [name, value(depth)];
  }

  function value(depth) {
    need(depth <= maxDepth, "nested too deeply");
    match(SPACE);
    switch (text[at]) {
      case "{":
        at += 1;
        return new Members(items("}", () => member(depth + 1)));
      case "[":
        at += 1;
        return items("]", () => value(depth + 1));
      case '"':
        return string();
      case "t":
        expect("true");
        return true;
      case "f":
        expect("false");
        return false;
      case "n":
        expect("null");
        return null;
    }
    const number = match(NUMBER);
    need(number, `no value at ${at}`);
    const [digits, fraction, exponent] = number;
    return fraction || exponent ? new Float(Number(digits)) : BigInt(digits);
  }

  const found = value(0);
  match(SPACE);
  need(at === text.length, "something behind the value");
  return found;
}
