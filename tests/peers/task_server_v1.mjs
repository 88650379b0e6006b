// A task server of 2025-11-25, with the TypeScript SDK 1.x: node task_server_v1.mjs FOLDER PORT
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, port] = process.argv.slice(2);
const require = createRequire(join(folder, "server.cjs"));
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { InMemoryTaskStore, InMemoryTaskMessageQueue } = require(
  "@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js"
);
const { ElicitResultSchema } = require("@modelcontextprotocol/sdk/types.js");

const taskStore = new InMemoryTaskStore();
const sessions = new Map();
const text = (value) => ({ content: [{ type: "text", text: value }] });

function build() {
  const capabilities = { tools: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } };
  const server = new McpServer(
    { name: "task-server-v1", version: "1" },
    { capabilities, taskStore, taskMessageQueue: new InMemoryTaskMessageQueue() }
  );
  const register = (name, taskSupport, work) =>
    server.experimental.tasks.registerToolTask(
      name,
      { description: name, execution: { taskSupport } },
      {
        async createTask(extra) {
          const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl ?? 60000, pollInterval: 100 });
          work(task, extra).catch(() => {});
          return { task };
        },
        getTask: (extra) => extra.taskStore.getTask(extra.taskId),
        getTaskResult: (extra) => extra.taskStore.getTaskResult(extra.taskId),
      }
    );
  register("research", "required", async (task, extra) => {
    await new Promise((resolve) => setTimeout(resolve, 200));
    await extra.taskStore.storeTaskResult(task.taskId, "completed", text("report"));
  });
  register("endless", "optional", async () => {});
  register("confirm", "required", async (task, extra) => {
    await extra.taskStore.updateTaskStatus(task.taskId, "input_required");
    const requestedSchema = { type: "object", properties: { sure: { type: "boolean" } }, required: ["sure"] };
    const request = { method: "elicitation/create", params: { mode: "form", message: "Are you sure?", requestedSchema } };
    const answer = await extra.sendRequest(request, ElicitResultSchema, { relatedTask: { taskId: task.taskId } });
    await extra.taskStore.storeTaskResult(task.taskId, "completed", text(`sure: ${answer.content.sure}`));
  });
  server.registerTool("plain", { description: "plain" }, async () => text("plain"));
  return server;
}

async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : undefined;
}

createServer(async (request, response) => {
  const id = request.headers["mcp-session-id"];
  const parsed = request.method === "POST" ? await body(request) : undefined;
  let transport = sessions.get(id);
  if (!transport) {
    if (id || parsed?.method !== "initialize") {
      response.writeHead(id ? 404 : 400, { "content-type": "application/json" });
      response.end(JSON.stringify({ jsonrpc: "2.0", id: null, error: { code: -32000, message: "No session" } }));
      return;
    }
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (created) => sessions.set(created, transport),
    });
    await build().connect(transport);
  }
  await transport.handleRequest(request, response, parsed);
}).listen(Number(port), "127.0.0.1");
