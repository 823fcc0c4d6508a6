// Drives the broker with @azure/event-hubs; node event_hubs.mjs CONNECTION-STRING.
import assert from "node:assert/strict";
import { EventHubConsumerClient, EventHubProducerClient, earliestEventPosition } from "@azure/event-hubs";

const [, , connectionString] = process.argv;
const producer = new EventHubProducerClient(connectionString, "js-hub");
assert.deepEqual(await producer.getPartitionIds(), ["0", "1"]);
const batch = await producer.createBatch({ partitionKey: "key" });
for (let number = 0; number < 20; number++) assert.ok(batch.tryAdd({ body: number, properties: { number } }));
await producer.sendBatch(batch);

const consumer = new EventHubConsumerClient("$Default", connectionString, "js-hub");
const bodies = [];
await new Promise((resolve, reject) => {
  consumer.subscribe(
    {
      processEvents: async (events) => {
        bodies.push(...events.map(({ body }) => body));
        if (bodies.length === 20) resolve();
      },
      processError: async (error) => reject(error),
    },
    { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1 },
  );
});
assert.deepEqual(bodies, Array.from({ length: 20 }, (_, number) => number));
await consumer.close();
await producer.close();
