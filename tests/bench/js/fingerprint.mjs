// Times the kernels of the wasm module in Node's V8.
//
// Usage: node fingerprint.mjs MODULE DIR BUDGET_MS
// DIR holds bodies; for each, one JSON line: name, and per kernel (hash, fingerprint, tree) the
// nanoseconds of one run, one number per round. The kernels take turns within a round, so that a
// slow moment of the machine meets all three. `digest` is the fingerprint, to compare with native.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const [modulePath, dir, budget] = process.argv.slice(2);
const module = new WebAssembly.Module(readFileSync(modulePath));
// The kernels call no host; what the standard library links in is answered with "success".
const imports = {};
for (const { module: from, name } of WebAssembly.Module.imports(module)) {
  (imports[from] ??= {})[name] = () => 0;
}
const { exports } = new WebAssembly.Instance(module, imports);
exports._initialize?.();

const kernels = ["hash", "fingerprint", "tree"];
const rounds = 9;
const slice = (Number(budget) * 1e6) / (rounds * kernels.length);

function once(kernel, count) {
  const start = process.hrtime.bigint();
  exports.run(kernel, count);
  return Number(process.hrtime.bigint() - start);
}

for (const name of readdirSync(dir).sort()) {
  const body = readFileSync(join(dir, name));
  // First the place: making room may grow the memory, which replaces its buffer.
  const place = exports.body(body.length);
  new Uint8Array(exports.memory.buffer, place, body.length).set(body);
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
  const result = exports.run(1, 1);
  const digest = new Uint8Array(exports.memory.buffer, result, 32);
  line.digest = Buffer.from(digest).toString("hex");
  line.memory_bytes = exports.memory.buffer.byteLength;
  console.log(JSON.stringify(line));
}
