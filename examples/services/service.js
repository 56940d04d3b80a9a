#!/usr/bin/env node
// Small web services whose limit is known, to try what Kendall says of them.
//
//   service.js PORT loop                   1 ms of JavaScript a request, on the one thread of the event loop:
//                                          one core, and 1000/s less what HTTP costs
//   service.js PORT blocking               a request blocks the event loop for 3 ms and uses no processor:
//                                          one at a time, 333/s at most
//   service.js PORT pool SIZE              a request holds one of SIZE places of a queue inside for 10 ms:
//                                          SIZE × 100/s at most
//   service.js PORT gateway HOST:PORT      asks another service once a request, and waits for it: what that
//                                          one carries
"use strict";
const http = require("http");

const [port, kind, dependency] = process.argv.slice(2);
let free = Number(dependency);
const waiting = [];
const never = new Int32Array(new SharedArrayBuffer(4));
const agent = new http.Agent({ keepAlive: true });

function compute(milliseconds) {
  const end = performance.now() + milliseconds;
  while (performance.now() < end);
}

function ok(answer) {
  answer.setHeader("Content-Length", 3);
  answer.end("ok\n");
}

const kinds = {
  loop(answer) {
    compute(1);
    ok(answer);
  },
  blocking(answer) {
    Atomics.wait(never, 0, 0, 3);
    ok(answer);
  },
  pool(answer) {
    if (free === 0) {
      waiting.push(answer);
      return;
    }
    free -= 1;
    setTimeout(() => {
      ok(answer);
      free += 1;
      if (waiting.length > 0) kinds.pool(waiting.shift());
    }, 10);
  },
  gateway(answer) {
    const asked = http.get(`http://${dependency}/`, { agent }, (there) => {
      there.resume();
      there.on("end", () => ok(answer));
    });
    asked.on("error", (error) => {
      answer.statusCode = 502;
      answer.end(String(error));
    });
  },
};

http.createServer((_, answer) => kinds[kind](answer)).listen(Number(port), "127.0.0.1", 512);
