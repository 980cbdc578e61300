// Prints the fingerprint of each body, one hex line each.
//
// Usage: node digests.mjs MODULE FILE
// FILE holds bodies one after the other, each behind its length (32 bits, little-endian).

import { readFileSync } from "node:fs";
import { load } from "./module.mjs";

const [modulePath, file] = process.argv.slice(2);
const module = load(modulePath);
const bytes = readFileSync(file);
for (let at = 0; at < bytes.length; ) {
  const start = at + 4;
  at = start + bytes.readUInt32LE(at);
  module.put(bytes.subarray(start, at));
  console.log(module.fingerprint());
}
