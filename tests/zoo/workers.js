// Workers, promises, and code that is compiled while it runs.
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
const zlib = require("zlib");
const fs = require("fs");

function work(n) {
  let sum = 0;
  for (let i = 0; i < 20000; i++) sum = (sum + JSON.stringify({ i, n }).length * n) % 1000003;
  return sum + zlib.deflateSync(Buffer.alloc(1000, n)).length;
}

if (isMainThread) {
  fs.writeSync(1, `ready ${process.pid}\n`);
  fs.readSync(0, Buffer.alloc(1));
  const one = (n) =>
    new Promise((resolve) => new Worker(__filename, { workerData: n }).on("message", resolve));
  Promise.all([1, 2, 3, 4].map(one)).then((sums) => console.log(work(5), ...sums));
} else {
  parentPort.postMessage(work(workerData));
}
