// Drives the broker with @azure/service-bus; node service_bus.mjs CONNECTION-STRING. Fails with the first assertion that does not hold.
import assert from "node:assert/strict";
import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient(process.argv[2], { retryOptions: { maxRetries: 0 } });
const soon = { maxWaitTimeInMs: 1000 };

async function refused(work, code) {
  await assert.rejects(work, (error) => {
    assert.equal(error.code, code, error.message);
    return true;
  });
}

async function settlement() {
  const sender = client.createSender("js-queue");
  await sender.sendMessages({ body: "single", applicationProperties: { number: 1, text: "t" } });
  const batch = await sender.createMessageBatch();
  for (let number = 0; number < 50; number++) assert.ok(batch.tryAddMessage({ body: `batched ${number}` }));
  await sender.sendMessages(batch);

  const receiver = client.createReceiver("js-queue");
  const messages = await receiver.receiveMessages(51, soon);
  assert.equal(messages.length, 51);
  assert.deepEqual(messages[0].applicationProperties, { number: 1, text: "t" });
  const [abandoned, deferred, dead, ...rest] = messages;
  await receiver.abandonMessage(abandoned, { changed: "yes" });
  await receiver.deferMessage(deferred);
  await receiver.deadLetterMessage(dead, { deadLetterReason: "why", deadLetterErrorDescription: "how", extra: 1 });
  await receiver.renewMessageLock(rest[0]);
  await Promise.all(rest.map((message) => receiver.completeMessage(message)));

  const [again] = await receiver.receiveMessages(1, soon);
  assert.equal(again.deliveryCount, 1);
  assert.equal(again.applicationProperties.changed, "yes");
  await receiver.completeMessage(again);
  const [found] = await receiver.receiveDeferredMessages(deferred.sequenceNumber);
  await receiver.completeMessage(found);
  // Ends with a drain, which the client waits for.
  assert.deepEqual(await receiver.receiveMessages(5, { maxWaitTimeInMs: 200 }), []);

  const graveyard = client.createReceiver("js-queue", { subQueueType: "deadLetter" });
  const [buried] = await graveyard.receiveMessages(1, soon);
  assert.equal(buried.deadLetterReason, "why");
  assert.equal(buried.applicationProperties.extra, 1);
  await graveyard.completeMessage(buried);

  const [number] = await sender.scheduleMessages([{ body: "later" }], new Date(Date.now() + 60_000));
  assert.equal((await receiver.peekMessages(5)).length, 1);
  await sender.cancelScheduledMessages(number);
  await refused(sender.sendMessages({ body: "x", applicationProperties: { b: Buffer.from([1]) } }), "MessageSizeExceeded");
  await refused(client.createReceiver("js-nowhere").receiveMessages(1, soon), "MessagingEntityNotFound");
}

async function windows() {
  // More messages than the client's session window of 2048 takes at once.
  const sender = client.createSender("js-copy");
  for (let round = 0; round < 15; round++) {
    await sender.sendMessages(Array.from({ length: 200 }, (_, number) => ({ body: `${round}-${number}` })));
  }
  const receiver = client.createReceiver("js-copy", { receiveMode: "receiveAndDelete" });
  let count = 0;
  while (count < 3000) {
    const messages = await receiver.receiveMessages(3000 - count, soon);
    assert.notEqual(messages.length, 0);
    count += messages.length;
  }
}

async function sessions() {
  const sender = client.createSender("js-sessions");
  await sender.sendMessages(["a", "b", "a"].map((sessionId, body) => ({ body, sessionId })));
  const receiver = await client.acceptSession("js-sessions", "a");
  assert.deepEqual((await receiver.receiveMessages(2, soon)).map(({ body }) => body), [0, 2]);
  await receiver.setSessionState({ step: 1 });
  assert.deepEqual(await receiver.getSessionState(), { step: 1 });
  await receiver.renewSessionLock();
  await refused(client.acceptSession("js-sessions", "a"), "SessionCannotBeLocked");
  const next = await client.acceptNextSession("js-sessions");
  assert.equal(next.sessionId, "b");
  await refused(sender.sendMessages({ body: "no session" }), "GeneralError");
}

async function rules() {
  const manager = client.createRuleManager("js-topic", "sub");
  await manager.createRule("sql", { sqlExpression: "a > 1" }, { sqlExpression: "SET b = 2" });
  await manager.createRule("correlation", { subject: "s", applicationProperties: { p: 5 } });
  await manager.deleteRule("$Default");
  const listed = [];
  for await (const rule of manager.listRules()) listed.push(rule);
  assert.deepEqual(listed.map(({ name }) => name), ["sql", "correlation"]);
  assert.deepEqual(listed[0].filter, { sqlExpression: "a > 1" });
  assert.deepEqual(listed[0].action, { sqlExpression: "SET b = 2" });
  assert.equal(listed[1].filter.subject, "s");
  assert.equal(listed[1].filter.applicationProperties.p, 5);
  const sender = client.createSender("js-topic");
  await sender.sendMessages([{ body: 1, applicationProperties: { a: 0 } }, { body: 2, applicationProperties: { a: 5 } }]);
  const messages = await client.createReceiver("js-topic", "sub").receiveMessages(5, soon);
  assert.deepEqual(messages.map(({ body, applicationProperties }) => [body, applicationProperties]), [
    [2, { a: 5, b: 2, RuleName: "sql" }],
  ]);
}

await Promise.all([settlement(), windows(), sessions(), rules()]);
await client.close();
