// Times the kernels of the wasm module in Node's V8.
//
// Usage: node fingerprint.mjs MODULE DIR BUDGET_MS
// DIR holds bodies; for each, one JSON line: name, and per kernel (hash, fingerprint, tree) the
// nanoseconds of one run, one number per round. The kernels take turns within a round, so that a
// slow moment of the machine meets all three. `digest` is the fingerprint, to compare with native.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { load } from "./module.mjs";

const [modulePath, dir, budget] = process.argv.slice(2);
const module = load(modulePath);

const kernels = ["hash", "fingerprint", "tree"];
const rounds = 9;
const slice = (Number(budget) * 1e6) / (rounds * kernels.length);

function once(kernel, count) {
  const start = process.hrtime.bigint();
  module.run(kernel, count);
  return Number(process.hrtime.bigint() - start);
}

for (const name of readdirSync(dir).sort()) {
  const body = readFileSync(join(dir, name));
  module.put(body);
  const line = { name, bytes: body.length };
  const counts = kernels.map((_, kernel) => {
    // Long enough for the optimising compiler to have replaced the first code.
    let count = 1;
    while (once(kernel, count) < slice && count < 1e7) count *= 2;
    return count;
  });
  for (const kernel of kernels) line[kernel] = [];
  for (let round = 0; round < rounds; round++) {
    kernels.forEach((kernel, at) => line[kernel].push(once(at, counts[at]) / counts[at]));
  }
  line.digest = module.fingerprint();
  line.memory_bytes = module.memory.buffer.byteLength;
  console.log(JSON.stringify(line));
}
