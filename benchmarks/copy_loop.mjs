// Copies a queue with @azure/service-bus: node copy_loop.mjs FROM-CONNECTION-STRING TO-CONNECTION-STRING COUNT.
// Receives 100, sends them as a batch, completes all at once; prints messages a second, after a warm-up of a tenth.
import { ServiceBusClient } from "@azure/service-bus";

const [from, to, count] = [process.argv[2], process.argv[3], Number(process.argv[4])];
const west = new ServiceBusClient(from);
const east = new ServiceBusClient(to);
// A copy is the same message: by default the client parses each body as JSON, and sends dates back as numbers.
const receiver = west.createReceiver("source", { skipParsingBodyAsJson: true, skipConvertingDate: true });
const sender = east.createSender("target");

async function copy(left) {
  while (left > 0) {
    const messages = await receiver.receiveMessages(Math.min(100, left), { maxWaitTimeInMs: 10_000 });
    if (messages.length === 0) throw new Error(`${left} messages are missing in the source`);
    await sender.sendMessages(messages);
    await Promise.all(messages.map((message) => receiver.completeMessage(message)));
    left -= messages.length;
  }
}

const warmUp = Math.round(count / 10);
await copy(warmUp);
const start = process.hrtime.bigint();
const before = process.cpuUsage();
await copy(count - warmUp);
const seconds = Number(process.hrtime.bigint() - start) / 1e9;
const used = process.cpuUsage(before);
console.log(JSON.stringify({ rate: (count - warmUp) / seconds, clientSeconds: (used.user + used.system) / 1e6, seconds }));
await west.close();
await east.close();
