// A checkpoint: its directory and manifests.  docs/format.md, sections 1, 5 and 7.

import { lstatSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Members, Refused, need, parse } from "./json.mjs";
import { KINDS_WITH_SCHEMA, NAME, utf8 } from "./records.mjs";
import { Stream, sha256 } from "./stream.mjs";

const SELF = ',"self":"sha256:';
const SEAL_BYTES = 83;
const SHA256 = /^[0-9a-f]{64}$/;
const LEDGER = /^(.*)[.](?:tokens|lineage)[.]jsonl$/s;
const TOKEN = /^[0-9a-f]{24}$/;
const FACTS = ["records", "blocks", "raw_bytes", "index_offset", "index_length"];

// No symbolic link below the root is followed.
function small(root, ...names) {
  let path = root;
  names.forEach((name, place) => {
    path = join(path, name);
    const found = lstatSync(path, { throwIfNoEntry: false });
    need(found, `there is no ${path}`, "missing");
    const fits = place === names.length - 1 ? found.isFile() : found.isDirectory();
    need(fits, "a link, or another kind of file");
  });
  return readFileSync(path);
}

class Manifest {
  constructor(members) {
    this.members = members.map;
  }

  get(name, fits, what) {
    const value = this.members.get(name);
    need(value !== undefined && fits(value), `${name} is not ${what}`);
    return value;
  }

  text = (name, form = /(?:)/) =>
    this.get(name, (v) => typeof v === "string" && form.test(v), "a string of its form");
  name = (name) =>
    this.get(name, (v) => typeof v === "string" && NAME.test(v) && v.length <= 128, "a name");
  array = (name) => this.get(name, Array.isArray, "an array");
  count = (name) =>
    this.get(name, (v) => typeof v === "bigint" && v >= 0n && v < 1n << 63n, "a count");

  nullable = (name, fits) => this.get(name, (v) => v === null || fits(v), "null or of its type");

  objects(name) {
    return this.array(name).map((item) => {
      need(item instanceof Members, "a member that is no object");
      return new Manifest(item);
    });
  }

  object = (name) => this.get(name, (v) => v instanceof Members, "an object");

  captureKeys(name) {
    const keys = this.array(name);
    keys.forEach(checkCaptureKey);
    checkAscending(keys);
    return keys;
  }
}

function checkCaptureKey(key) {
  need(typeof key === "string", "a capture key that is no string");
  const rollout = key.replace(/-a[1-9][0-9]*$/, "");
  need(NAME.test(rollout) && !/-a[1-9][0-9]*$/.test(rollout), "a malformed capture key");
}

function checkAscending(names) {
  const ascend = names.every((name, place) => place === 0 || names[place - 1] < name);
  need(ascend, "names do not ascend, or stand twice");
}

function checkPins(pins) {
  for (const pin of pins) {
    const [, key] = LEDGER.exec(pin.text("name")) ?? need(false, "a pin of no ledger");
    checkCaptureKey(key);
    pin.count("size_bytes");
    pin.text("sha256", SHA256);
  }
  checkAscending(pins.map((pin) => pin.text("name")));
}

function refuseTwins(value) {
  if (Array.isArray(value)) value.forEach(refuseTwins);
  if (!(value instanceof Members)) return;
  need(!value.twice, "two members of one name");
  [...value.map.values()].forEach(refuseTwins);
}

function unsealed(data) {
  const seal = data.subarray(-SEAL_BYTES).toString("latin1");
  const either = seal.startsWith(SELF) || seal.endsWith('"}\n');
  need(either, "the manifest has no seal", "torn");
  const digest = sha256(data.subarray(0, -SEAL_BYTES)).toString("hex");
  need(seal === `${SELF}${digest}"}\n`, "the seal is broken");
  const members = parse(utf8(data));
  need(members instanceof Members, "the manifest is no object");
  refuseTwins(members);
  const manifest = new Manifest(members);
  need(members.map.get("tombstone") !== true, "it was given up", "aborted");
  const features = manifest.array("required_features");
  need(features.every((name) => typeof name === "string"), "a feature that is no string");
  need(manifest.text("format") === "ckptfmt", "another format", "unsupported");
  need(manifest.count("major") === 1n, "another major version", "unsupported");
  need(features.length === 0, `required features ${features}`, "unsupported");
  manifest.text("token", TOKEN);
  manifest.name("checkpoint_id");
  manifest.count("minor");
  manifest.object("provenance");
  return manifest;
}

function hasParticipants(root) {
  const folders = (path) =>
    readdirSync(path, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return folders(root).some((kind) =>
    folders(join(root, kind.name)).some((instance) =>
      readdirSync(join(root, kind.name, instance.name)).includes("manifest.json"),
    ),
  );
}

export function readCheckpoint(root) {
  let top;
  try {
    top = unsealed(small(root, "checkpoint.json"));
  } catch (error) {
    const written = error instanceof Refused && error.code === "missing" && hasParticipants(root);
    throw written ? new Refused("incomplete", "it was never published") : error;
  }
  const listed = top.objects("participants");
  const names = listed.map((item) => `${item.name("kind")}/${item.name("instance")}`);
  const folded = new Set(names.map((name) => name.toLowerCase()));
  need(folded.size === names.length, "a participant stands twice");
  need(names.length > 0, "no participants");
  top.object("user_metadata");
  for (const name of ["recovered", "previous"]) top.nullable(name, (v) => v instanceof Members);
  for (const name of ["run_id", "config_digest"]) top.nullable(name, (v) => typeof v === "string");
  const scope = top.get("scope", () => true) === null ? null : top.captureKeys("scope");
  const sequence = Number(top.count("sequence"));
  const participants = {};
  for (const item of listed) {
    const who = ["kind", "instance"].map((name) => item.name(name));
    participants[who.join("/")] = readParticipant(root, who, item, top.name("checkpoint_id"));
  }
  return { sequence, scope, participants };
}

function readParticipant(root, who, item, checkpointId) {
  const data = small(root, ...who, "manifest.json");
  const size = item.count("manifest_bytes");
  need(BigInt(data.length) >= size, "the manifest is too short", "torn");
  need(BigInt(data.length) === size, "the manifest is too long");
  const digest = item.text("manifest_sha256", SHA256);
  need(digest === sha256(data).toString("hex"), "another manifest than was published");
  const own = unsealed(data);
  const stated = [own.name("kind"), own.name("instance"), own.name("checkpoint_id")];
  need(stated.join("/") === [...who, checkpointId].join("/"), "the manifest of somebody else");
  const schema = KINDS_WITH_SCHEMA.includes(who[0]) ? who[0] : "generic";
  const known = own.text("schema") === schema && own.count("schema_version") === 1n;
  need(known, "another schema", "unsupported");

  own.object("role");
  if (own.members.has("ledger_pins")) checkPins(own.objects("ledger_pins"));
  const streams = [];
  let ordinal = 0n;
  own.objects("objects").forEach((object, number) => {
    need(object.count("first_ordinal") === ordinal, "a first ordinal is wrong");
    streams.push(readObject(root, who, object, own.text("token"), number));
    ordinal += object.count("records");
  });
  need(own.count("record_count") === ordinal, "the record count is wrong");
  const content = sha256(Buffer.concat(streams.map((stream) => stream.content))).toString("hex");
  need(own.text("content_digest", SHA256) === content, "the content digest is wrong");
  const records = streams.flatMap((stream) => stream.records());
  need(new Set(records.map(({ key }) => key)).size === records.length, "two records of one key");
  const episodes = [...new Set(records.map(({ key }) => key.split("/")[0]))].sort();
  need(own.captureKeys("episode_ids").join() === episodes.join(), "other episodes are listed");
  return { content_digest: content, records };
}

function readObject(root, who, object, token, number) {
  const name = `records-${token}-${String(number).padStart(3, "0")}.jsonl.zst`;
  need(object.text("name") === name, "the name of an object is not its own");
  const size = object.count("size_bytes");
  const digest = object.text("sha256", SHA256);
  const data = small(root, ...who, name);
  need(BigInt(data.length) >= size, "the object is too short", "torn");
  need(BigInt(data.length) === size, "the object is too long");
  need(digest === sha256(data).toString("hex"), "the digest of an object is wrong");
  const stream = new Stream(data, { whole: true });
  const stated = FACTS.map((fact) => object.count(fact));
  need(stated.join() === stream.facts.join(), "the manifest counts otherwise");
  return stream;
}
