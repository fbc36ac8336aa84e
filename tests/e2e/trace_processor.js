// Perfetto's trace processor outside a browser: what its page does to the worker, with stdin and stdout as the port.
// node trace_processor.js FOLDER: FOLDER has the engine of Perfetto's page, and its WebAssembly. Both ways go
// TraceProcessorRpcStream (protos/perfetto/trace_processor/trace_processor.proto).
"use strict";

const { readFileSync, writeSync } = require("node:fs");
const { basename, join } = require("node:path");

const folder = process.argv[2];

class FileRequest {
  open(method, url) {
    this.path = join(folder, basename(url));
  }
  send() {
    this.response = readFileSync(this.path);
  }
}

const worker = { location: { href: "file:///" } };
const talk = { log: console.error, warn: console.error, error: console.error };
const names = ["self", "process", "WorkerGlobalScope", "XMLHttpRequest", "console"];
const engine = new Function(...names, readFileSync(join(folder, "engine_bundle.js"), "utf8"));
engine(worker, undefined, Object, FileRequest, talk);

const port = {
  postMessage(reply) {
    for (let at = 0; at < reply.length; ) {
      at += writeSync(1, reply, at);
    }
  },
};
worker.onmessage({ data: port });
setImmediate(() => process.stdin.on("data", (asked) => port.onmessage({ data: new Uint8Array(asked) })));
