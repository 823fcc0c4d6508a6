// Wrong and right keys with @azure/service-bus; node authentication.mjs CONNECTION-STRING. Fails with the first assertion that does not hold.
import assert from "node:assert/strict";
import { ServiceBusClient } from "@azure/service-bus";

const options = { retryOptions: { maxRetries: 0 } };
const right = process.argv[2];
const wrong = right.replace(/SharedAccessKey=[^;]+/, "SharedAccessKey=wrong");
const sender = right.replace(/SharedAccessKeyName=[^;]+;SharedAccessKey=[^;]+/, "SharedAccessKeyName=sender;SharedAccessKey=send key");

async function send(connectionString) {
  const client = new ServiceBusClient(connectionString, options);
  try {
    await client.createSender("orders").sendMessages({ body: "body" });
  } finally {
    await client.close();
  }
}

async function receive(connectionString) {
  const client = new ServiceBusClient(connectionString, options);
  try {
    return await client.createReceiver("orders").receiveMessages(1, { maxWaitTimeInMs: 500 });
  } finally {
    await client.close();
  }
}

await send(right);
assert.equal((await receive(right)).length, 1);
await send(sender);
for (const work of [() => send(wrong), () => receive(wrong), () => receive(sender)]) {
  await assert.rejects(work, (error) => {
    assert.equal(error.code, "UnauthorizedAccess", error.message);
    return true;
  });
}
