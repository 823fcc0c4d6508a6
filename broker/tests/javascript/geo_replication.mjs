// Reads a geo-replicated hub with @azure/event-hubs; node geo_replication.mjs CONNECTION-STRING.
import assert from "node:assert/strict";
import { EventHubConsumerClient, EventHubProducerClient, earliestEventPosition } from "@azure/event-hubs";

const [, , connectionString] = process.argv;
const producer = new EventHubProducerClient(connectionString, "h");
assert.equal((await producer.getEventHubProperties()).isGeoDrEnabled, true);
await producer.sendBatch([{ body: "a" }, { body: "b" }]);

async function read(count, startPosition) {
  const consumer = new EventHubConsumerClient("$Default", connectionString, "h", { retryOptions: { maxRetries: 0 } });
  const events = [];
  try {
    await new Promise((resolve, reject) => {
      consumer.subscribe(
        {
          processEvents: async (received) => {
            events.push(...received);
            if (events.length >= count) resolve();
          },
          processError: async (error) => reject(error),
        },
        { startPosition, maxWaitTimeInSeconds: 1 },
      );
    });
  } finally {
    await consumer.close();
  }
  return events;
}

const [first] = await read(2, earliestEventPosition);
assert.match(first.offset, /^1:/);
assert.equal((await read(1, { offset: first.offset }))[0].body, "b");
// @azure/core-amqp keeps the description of a condition that it has no name for.
await assert.rejects(read(1, { offset: "0" }), /the supplied offset '0' is invalid: the hub is geo-replicated/);
await producer.close();
