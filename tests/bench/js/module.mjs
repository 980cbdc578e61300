// The wasm module of tests/bench/wasm in Node's V8: one place to load it and to hand it bodies.

import { readFileSync } from "node:fs";

/** Loads the module; `put` copies a body in, `run` makes 32 bytes of it. */
export function load(path) {
  const module = new WebAssembly.Module(readFileSync(path));
  // The kernels call no host; what the standard library links in is answered with "success".
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    (imports[from] ??= {})[name] = () => 0;
  }
  const { exports } = new WebAssembly.Instance(module, imports);
  exports._initialize?.();
  return {
    memory: exports.memory,
    /** Runs a kernel (0 hash, 1 fingerprint, 2 tree) so many times over the body. */
    run: exports.run,
    put(body) {
      // First the place: making room may grow the memory, which replaces its buffer.
      const place = exports.body(body.length);
      new Uint8Array(exports.memory.buffer, place, body.length).set(body);
    },
    fingerprint() {
      const result = exports.run(1, 1);
      return Buffer.from(new Uint8Array(exports.memory.buffer, result, 32)).toString("hex");
    },
  };
}
