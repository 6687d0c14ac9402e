// node reader.mjs FOLDER…: a line of JSON a folder, what it holds or {"error": its class}.
// It ends with 1 where one was refused.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { readCheckpoint } from "./checkpoint.mjs";
import { Refused } from "./json.mjs";
import { Stream, sha256 } from "./stream.mjs";

function read(folder) {
  const checkpoint = join(folder, "checkpoint");
  if (existsSync(checkpoint)) return readCheckpoint(checkpoint);
  const stream = new Stream(readFileSync(join(folder, "records.jsonl.zst")));
  const digest = sha256(stream.content).toString("hex");
  return { names: stream.names, content_digest: digest, records: stream.records() };
}

for (const folder of process.argv.slice(2)) {
  let found;
  try {
    found = read(folder);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    found = { error: error.code, why: error.message };
    process.exitCode = 1;
  }
  console.log(JSON.stringify(found));
}
