// Drives the administration with @azure/service-bus; node administration.mjs CONNECTION-STRING. Fails with the first assertion that does not hold.
import assert from "node:assert/strict";
import { ServiceBusAdministrationClient } from "@azure/service-bus";

const [, , connectionString] = process.argv;
const host = /sb:\/\/([^;]+)/.exec(connectionString)[1];
const client = new ServiceBusAdministrationClient(connectionString, { retryOptions: { maxRetries: 0 } });

async function refused(work, code, statusCode) {
  await assert.rejects(work, (error) => {
    assert.equal(error.code, code, error.message);
    assert.equal(error.statusCode, statusCode);
    return true;
  });
}

async function all(pages) {
  const found = [];
  for await (const each of pages) found.push(each);
  return found;
}

async function queues() {
  await client.createQueue("target");
  const rules = [
    { claimType: "SharedAccessKey", claimValue: "None", accessRights: ["Send"], keyName: "k", primaryKey: "p", secondaryKey: "s" },
  ];
  const created = await client.createQueue("js", {
    lockDuration: "PT45S",
    requiresSession: false,
    maxDeliveryCount: 4,
    defaultMessageTimeToLive: "P1DT2H",
    forwardDeadLetteredMessagesTo: "target",
    userMetadata: "<written> & read",
    authorizationRules: rules,
  });
  assert.equal(created.name, "js");
  const { lockDuration, maxDeliveryCount, userMetadata, status, ...queue } = await client.getQueue("js");
  assert.deepEqual(
    { lockDuration, maxDeliveryCount, userMetadata, status },
    { lockDuration: "PT45S", maxDeliveryCount: 4, userMetadata: "<written> & read", status: "Active" },
  );
  assert.equal(queue.defaultMessageTimeToLive, "P1DT2H");
  assert.equal(queue.forwardDeadLetteredMessagesTo, `sb://${host}/target`);
  assert.deepEqual(queue.authorizationRules[0].accessRights, ["Send"]);

  await client.updateQueue({ ...(await client.getQueue("js")), maxDeliveryCount: 7, status: "SendDisabled" });
  const updated = await client.getQueue("js");
  assert.deepEqual([updated.maxDeliveryCount, updated.status], [7, "SendDisabled"]);
  const runtime = await client.getQueueRuntimeProperties("js");
  assert.deepEqual([runtime.totalMessageCount, runtime.activeMessageCount, runtime.sizeInBytes], [0, 0, 0]);
  assert.ok(runtime.createdAt.getTime() > 0);

  await refused(client.createQueue("js"), "MessageEntityAlreadyExistsError", 409);
  await refused(client.getQueue("missing"), "MessageEntityNotFoundError", 404);
  await refused(client.createQueue("bad", { lockDuration: "PT10M" }), "ServiceError", 400);
  assert.equal(await client.queueExists("js"), true);
  assert.equal(await client.queueExists("missing"), false);
  for (let number = 0; number < 5; number++) await client.createQueue(`paged-${number}`);
  const pages = [];
  for await (const page of client.listQueues().byPage({ maxPageSize: 3 })) pages.push(page.map((each) => each.name));
  assert.deepEqual(pages, [["js", "paged-0", "paged-1"], ["paged-2", "paged-3", "paged-4"], ["target"]]);
  await client.deleteQueue("js");
  await refused(client.getQueue("js"), "MessageEntityNotFoundError", 404);
}

async function topics() {
  await client.createTopic("topic", { maxSizeInMegabytes: 2048, requiresDuplicateDetection: true });
  await client.createSubscription("topic", "sub", {
    defaultRuleOptions: { name: "first", filter: { sqlExpression: "a = @a", sqlParameters: { "@a": 1 } } },
  });
  await client.createSubscription("topic", "other");
  assert.deepEqual((await client.getTopicRuntimeProperties("topic")).subscriptionCount, 2);
  const [first] = await all(client.listRules("topic", "sub"));
  assert.deepEqual([first.name, first.filter], ["first", { sqlExpression: "a = @a", sqlParameters: { "@a": 1 } }]);
  await client.createRule("topic", "sub", "second", { subject: "s", applicationProperties: { text: "t", yes: true, number: 1.5 } });
  const second = await client.getRule("topic", "sub", "second");
  assert.equal(second.filter.subject, "s");
  assert.deepEqual(second.filter.applicationProperties, { text: "t", yes: true, number: 1.5 });
  await client.updateRule("topic", "sub", { ...second, filter: { sqlExpression: "b  =  2" }, action: { sqlExpression: "SET c=3" } });
  const changed = await client.getRule("topic", "sub", "second");
  assert.deepEqual([changed.filter.sqlExpression, changed.action.sqlExpression], ["b  =  2", "SET c=3"]);
  await client.deleteRule("topic", "sub", "first");
  assert.deepEqual((await all(client.listRules("topic", "sub"))).map((rule) => rule.name), ["second"]);
  assert.deepEqual((await all(client.listSubscriptions("topic"))).map((each) => each.subscriptionName), ["other", "sub"]);
  const subscription = await client.getSubscription("topic", "sub");
  await client.updateSubscription({ ...subscription, maxDeliveryCount: 2 });
  assert.equal((await client.getSubscription("topic", "sub")).maxDeliveryCount, 2);
  assert.equal((await client.getSubscriptionRuntimeProperties("topic", "sub")).totalMessageCount, 0);
  await refused(client.createRule("topic", "sub", "bad", { sqlExpression: "a >" }), "ServiceError", 400);
  await client.deleteSubscription("topic", "sub");
  await client.deleteTopic("topic");
  assert.deepEqual(await all(client.listTopics()), []);
}

async function namespace() {
  const info = await client.getNamespaceProperties();
  assert.deepEqual([info.name, info.messagingSku], ["west", "Standard"]);
}

if (process.argv[3] === "unauthorized") {
  await refused(client.getNamespaceProperties(), "UnauthorizedRequestError", 401);
} else {
  await namespace();
  await queues();
  await topics();
}
