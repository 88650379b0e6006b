// Calls the gateway with the TypeScript SDK's v1 client: node journey_v1.mjs FOLDER URL KEY
// Prints the results as one JSON object.
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, url, key] = process.argv.slice(2);
const require = createRequire(join(folder, "journey.cjs"));
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { ElicitRequestSchema } = require("@modelcontextprotocol/sdk/types.js");

const client = new Client({ name: "journey", version: "1" }, { capabilities: { elicitation: {} } });
const results = { asked: [], progress: [] };
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  results.asked.push(request.params.message);
  return { action: "accept", content: { name: "Ada" } };
});

const caught = (error) => ({ name: error.name, code: error.code, message: error.message, data: error.data });
const headers = { Authorization: `Bearer ${key}` };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
await client.connect(transport);
results.server = client.getServerVersion();
results.version = transport.protocolVersion;
results.tools = (await client.listTools()).tools;
results.echo = await client.callTool({ name: "plain_echo", arguments: { text: "grüße" } });
results.count = await client.callTool({ name: "plain_count", arguments: { to: 3 } }, undefined, {
  onprogress: (step) => results.progress.push(step),
});
results.greet = await client.callTool({ name: "plain_greet", arguments: {} });
results.fail = await client.callTool({ name: "plain_fail", arguments: { text: "secret words" } });
results.refuse = await client.callTool({ name: "strict_refuse", arguments: {} }).catch(caught);
results.crash = await client.callTool({ name: "strict_crash", arguments: {} }).catch(caught);
results.invalid = await client.callTool({ name: "strict_double", arguments: { number: "two" } }).catch(caught);
results.unknown = await client.callTool({ name: "strict_nothing", arguments: {} }).catch(caught);
await transport.terminateSession();
await client.close();
process.stdout.write(JSON.stringify(results));
