// A task client of 2025-11-25, with the TypeScript SDK 1.x: node task_client_v1.mjs FOLDER URL KEY NAMES
// NAMES is a JSON object of the tools to call; see task_client_v1.py. Prints what it saw as one JSON object.
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, url, key, encoded] = process.argv.slice(2);
const require = createRequire(join(folder, "client.cjs"));
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { CallToolResultSchema, ElicitRequestSchema } = require("@modelcontextprotocol/sdk/types.js");

const names = JSON.parse(encoded);
const seen = { asked: [], statuses: [] };
const client = new Client({ name: "tasks", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  seen.asked.push(request.params.message);
  return { action: "accept", content: { sure: true, name: "Ada" } };
});
const headers = key ? { Authorization: `Bearer ${key}` } : {};
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
seen.capability = client.getServerCapabilities().tasks ?? null;
seen.support = Object.fromEntries(
  (await client.listTools()).tools.map((tool) => [tool.name, tool.execution?.taskSupport ?? null])
);
const tasks = client.experimental.tasks;

async function call([name, args], observe) {
  let last;
  const options = { task: { ttl: 120000 } };
  for await (const message of tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, options)) {
    last = message;
    if (observe) await observe(message);
  }
  return last;
}

const done = await call(names.long, (message) => {
  if (message.type === "taskCreated") [seen.id, seen.created] = [message.task.taskId, message.task.status];
  if (message.type === "taskStatus") seen.statuses.push(message.task.status);
});
seen.result = done.result ?? { error: done.error?.message };
seen.listed = (await tasks.listTasks()).tasks.map((task) => task.taskId);
if (names.endless) {
  let cancelled = false;
  await call(names.endless, async (message) => {
    if (message.type === "taskCreated" && !cancelled) {
      cancelled = true;
      seen.cancelled = (await tasks.cancelTask(message.task.taskId)).status;
    }
  });
}
if (names.asking) {
  const last = await call(names.asking);
  seen.answered = last.result ? last.result.content[0].text : last.error?.message;
}
if (names.sync) {
  const [name, args] = names.sync;
  seen.sync = (await client.callTool({ name, arguments: args })).content[0].text;
}
seen.unknown = await tasks.getTask("no-such-task").then(() => null, (error) => error.code);
await client.close();
process.stdout.write(JSON.stringify(seen));
process.exit(0);
