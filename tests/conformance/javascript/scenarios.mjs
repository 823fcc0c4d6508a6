// Scenarios with @azure/service-bus and @azure/event-hubs; prints one line of JSON for each.
import assert from "node:assert/strict";
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import { EventHubConsumerClient, EventHubProducerClient, earliestEventPosition } from "@azure/event-hubs";

const bus = process.env.BUSWAY_CONNECTION_STRING;
const hubs = process.env.BUSWAY_HUBS_CONNECTION_STRING;
const client = new ServiceBusClient(bus);
const administration = new ServiceBusAdministrationClient(
  `Endpoint=sb://localhost:${process.env.BUSWAY_ADMIN};SharedAccessKeyName=${process.env.BUSWAY_KEY_NAME};SharedAccessKey=${process.env.BUSWAY_KEY}`,
);

async function scenario(name, run) {
  try {
    await Promise.race([run(), new Promise((_, fail) => setTimeout(() => fail(new Error("no end after 60 s")), 60_000).unref())]);
    console.log(JSON.stringify({ name, outcome: "passed" }));
  } catch (error) {
    console.log(JSON.stringify({ name, outcome: "failed", reason: String(error.message).split("\n")[0] }));
  }
}

const take = async (receiver, count) => {
  const found = [];
  while (found.length < count) {
    const some = await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs: 5_000 });
    assert.notEqual(some.length, 0, `${found.length} of ${count} messages arrived`);
    found.push(...some);
  }
  return found;
};
const bodies = (messages) => messages.map((each) => each.body);
const nothing = async (receiver) => assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 300 }), []);

await scenario("send and receive, with all properties", async () => {
  const sent = { body: { number: 1 }, messageId: "m", subject: "s", correlationId: "c", contentType: "t", to: "to", replyTo: "r", timeToLive: 60_000, applicationProperties: { text: "x", number: 1.5, flag: true } };
  await client.createSender("plain").sendMessages(sent);
  const receiver = client.createReceiver("plain");
  const [message] = await take(receiver, 1);
  for (const [name, value] of Object.entries(sent)) assert.deepEqual(message[name], value, name);
  await receiver.completeMessage(message);
  await nothing(receiver);
});

await scenario("a batch of 500", async () => {
  const sender = client.createSender("batch");
  const batch = await sender.createMessageBatch();
  for (let number = 0; number < 500; number++) assert.ok(batch.tryAddMessage({ body: number }));
  await sender.sendMessages(batch);
  const received = await take(client.createReceiver("batch", { receiveMode: "receiveAndDelete" }), 500);
  assert.deepEqual(bodies(received), [...Array(500).keys()]);
});

await scenario("settle: complete, abandon, renew", async () => {
  await client.createSender("settle").sendMessages([{ body: "a" }, { body: "b" }]);
  const receiver = client.createReceiver("settle");
  const [a, b] = await take(receiver, 2);
  await receiver.abandonMessage(a, { why: "retry" });
  assert.ok((await receiver.renewMessageLock(b)) > new Date());
  await receiver.completeMessage(b);
  const [again] = await take(receiver, 1);
  assert.deepEqual([again.body, again.deliveryCount, again.applicationProperties.why], ["a", 1, "retry"]);
  await receiver.completeMessage(again);
});

await scenario("deferred", async () => {
  await client.createSender("deferred").sendMessages({ body: "later" });
  const receiver = client.createReceiver("deferred");
  const [message] = await take(receiver, 1);
  await receiver.deferMessage(message);
  await nothing(receiver);
  const [found] = await receiver.receiveDeferredMessages([message.sequenceNumber]);
  assert.deepEqual([found.body, found.state], ["later", "deferred"]);
  await receiver.completeMessage(found);
});

await scenario("dead letters", async () => {
  await client.createSender("dead").sendMessages({ body: "bad" });
  const receiver = client.createReceiver("dead");
  const [message] = await take(receiver, 1);
  await receiver.deadLetterMessage(message, { deadLetterReason: "why", deadLetterErrorDescription: "because" });
  const [found] = await take(client.createReceiver("dead", { subQueueType: "deadLetter" }), 1);
  assert.deepEqual([found.body, found.deadLetterReason, found.deadLetterErrorDescription], ["bad", "why", "because"]);
});

await scenario("scheduled and cancelled", async () => {
  const sender = client.createSender("scheduled");
  const numbers = await sender.scheduleMessages([{ body: "soon" }, { body: "never" }], new Date(Date.now() + 1_500));
  await sender.cancelScheduledMessages(numbers[1]);
  const receiver = client.createReceiver("scheduled");
  assert.deepEqual(bodies(await take(receiver, 1)), ["soon"]);
  await nothing(receiver);
});

await scenario("peek", async () => {
  await client.createSender("peek").sendMessages([{ body: 1 }, { body: 2 }]);
  const receiver = client.createReceiver("peek");
  assert.deepEqual(bodies(await receiver.peekMessages(10)), [1, 2]);
});

await scenario("sessions: state, order, next available", async () => {
  const sender = client.createSender("sessions");
  await sender.sendMessages([0, 1, 2, 3].map((body) => ({ body, sessionId: `s${body % 2}` })));
  const one = await client.acceptSession("sessions", "s1");
  await one.setSessionState(Buffer.from("half"));
  assert.equal(String(await one.getSessionState()), "half");
  assert.ok((await one.renewSessionLock()) > new Date());
  const next = await client.acceptNextSession("sessions");
  assert.equal(next.sessionId, "s0");
  for (const [receiver, expected] of [[one, [1, 3]], [next, [0, 2]]]) {
    const messages = await take(receiver, 2);
    assert.deepEqual(bodies(messages), expected);
    for (const each of messages) await receiver.completeMessage(each);
    await receiver.close();
  }
});

await scenario("rules: SQL, correlation, action", async () => {
  const rules = client.createRuleManager("news", "filtered");
  await rules.deleteRule("$Default");
  await rules.createRule("large", { sqlExpression: "size > 10" }, { sqlExpression: "SET size = size + 1" });
  await rules.createRule("red", { applicationProperties: { colour: "red" } });
  const names = [];
  for await (const rule of rules.listRules()) names.push(rule.name);
  assert.deepEqual(names.sort(), ["large", "red"]);
  const properties = [{ size: 5 }, { size: 11 }, { colour: "red" }];
  await client.createSender("news").sendMessages(properties.map((applicationProperties, body) => ({ body, applicationProperties })));
  const receiver = client.createReceiver("news", "filtered", { receiveMode: "receiveAndDelete" });
  const found = await take(receiver, 2);
  assert.deepEqual([bodies(found), found[0].applicationProperties.size], [[1, 2], 12]);
  await nothing(receiver);
});

await scenario("administration: create, read, count, delete", async () => {
  await administration.createQueue("made", { lockDuration: "PT30S", maxDeliveryCount: 3 });
  await client.createSender("made").sendMessages([{ body: 1 }, { body: 2 }]);
  const { lockDuration, maxDeliveryCount } = await administration.getQueue("made");
  assert.deepEqual([lockDuration, maxDeliveryCount], ["PT30S", 3]);
  assert.equal((await administration.getQueueRuntimeProperties("made")).activeMessageCount, 2);
  await administration.deleteQueue("made");
  assert.equal(await administration.queueExists("made"), false);
});

await scenario("an unknown queue, and a wrong key", async () => {
  await assert.rejects(client.createSender("unknown").sendMessages({ body: 1 }), { code: "MessagingEntityNotFound" });
  const stranger = new ServiceBusClient(bus.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=wrong"), { retryOptions: { maxRetries: 0 } });
  await assert.rejects(stranger.createSender("plain").sendMessages({ body: 1 }), { code: "UnauthorizedAccess" });
  await stranger.close();
});

await scenario("a hub: keys, partitions, positions", async () => {
  const producer = new EventHubProducerClient(hubs, "hub");
  const { partitionIds } = await producer.getEventHubProperties();
  assert.equal(partitionIds.length, 2);
  await producer.sendBatch([1, 2, 3].map((body) => ({ body })), { partitionId: "0" });
  await producer.sendBatch([{ body: 4, properties: { a: 1 } }], { partitionKey: "k" });
  const { lastEnqueuedSequenceNumber } = await producer.getPartitionProperties("0");
  assert.ok(lastEnqueuedSequenceNumber >= 2);
  const consumer = new EventHubConsumerClient("$Default", hubs, "hub");
  const found = await new Promise((resolve, reject) => {
    const seen = [];
    const processEvents = async (events) => {
      seen.push(...events);
      if (seen.length === 4) resolve(seen);
    };
    consumer.subscribe({ processEvents, processError: async (error) => reject(error) }, { startPosition: earliestEventPosition });
  });
  assert.deepEqual(bodies(found).sort(), [1, 2, 3, 4]);
  assert.equal(found.find((each) => each.body === 4).partitionKey, "k");
  await consumer.close();
  await producer.close();
});

await scenario("a hub with checkpoints", async () => {
  const producer = new EventHubProducerClient(hubs, "checkpoints");
  const kept = new Map();
  const owners = new Map();
  const store = {
    listOwnership: async () => [...owners.values()],
    claimOwnership: async (wanted) => wanted.map((each) => (owners.set(each.partitionId, { ...each, etag: String(Math.random()), lastModifiedTimeInMs: Date.now() }), owners.get(each.partitionId))),
    updateCheckpoint: async (checkpoint) => void kept.set(checkpoint.partitionId, checkpoint),
    listCheckpoints: async () => [...kept.values()],
  };
  const read = async (count) => {
    const consumer = new EventHubConsumerClient("$Default", hubs, "checkpoints", store);
    const seen = [];
    await new Promise((resolve, reject) => {
      const processEvents = async (events, context) => {
        if (events.length === 0) return;
        seen.push(...bodies(events));
        await context.updateCheckpoint(events.at(-1));
        if (seen.length >= count) resolve();
      };
      consumer.subscribe({ processEvents, processError: async (error) => reject(error) }, { startPosition: earliestEventPosition });
    });
    await consumer.close();
    owners.clear();
    return seen.sort();
  };
  await producer.sendBatch([{ body: 1 }, { body: 2 }]);
  assert.deepEqual(await read(2), [1, 2]);
  await producer.sendBatch([{ body: 3 }]);
  assert.deepEqual(await read(1), [3]);
  await producer.close();
});

await client.close();
process.exit(0);
