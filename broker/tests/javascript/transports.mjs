// Sends and receives over TLS and over WebSockets; node transports.mjs SERVICE-BUS EVENT-HUBS (connection strings).
import assert from "node:assert/strict";
import { EventHubProducerClient } from "@azure/event-hubs";
import { ServiceBusClient } from "@azure/service-bus";

const [serviceBus, eventHubs] = process.argv.slice(2);
assert.ok(globalThis.WebSocket, "needs Node.js 22, or --experimental-websocket");

for (const options of [{}, { webSocketOptions: { webSocket: WebSocket } }]) {
  const client = new ServiceBusClient(serviceBus, { ...options, retryOptions: { maxRetries: 0 } });
  const bodies = Array.from({ length: 20 }, (_, number) => `${number}`.padEnd(20_000, "."));
  const sender = client.createSender("q");
  for (const body of bodies) await sender.sendMessages({ body });
  const receiver = client.createReceiver("q");
  const received = [];
  while (received.length < bodies.length) received.push(...(await receiver.receiveMessages(20, { maxWaitTimeInMs: 1000 })));
  assert.deepEqual(received.map((message) => message.body), bodies);
  for (const message of received) await receiver.completeMessage(message);
  await client.close();

  const producer = new EventHubProducerClient(eventHubs, "h", { ...options, retryOptions: { maxRetries: 0 } });
  await producer.sendBatch([{ body: "event" }]);
  assert.equal((await producer.getEventHubProperties()).name, "h");
  await producer.close();
}
