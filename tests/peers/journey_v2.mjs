// Calls the gateway with the TypeScript SDK's v2 client: node journey_v2.mjs FOLDER URL KEY ERA
// Prints the results as one JSON object.
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, url, key, era] = process.argv.slice(2);
const require = createRequire(join(folder, "journey.cjs"));
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");

const mode = era === "handshake" ? "legacy" : { pin: era };
const client = new Client(
  { name: "journey", version: "1" },
  { capabilities: { elicitation: {} }, versionNegotiation: { mode } },
);
const results = { asked: [], progress: [] };
client.setRequestHandler("elicitation/create", async (request) => {
  results.asked.push(request.params.message);
  return { action: "accept", content: { name: "Ada" } };
});

const caught = (error) => ({ name: error.name, code: error.code, message: error.message, data: error.data });
const headers = { Authorization: `Bearer ${key}` };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
await client.connect(transport);
results.server = client.getServerVersion();
results.version = client.getNegotiatedProtocolVersion();
results.tools = (await client.listTools()).tools;
results.echo = await client.callTool({ name: "plain_echo", arguments: { text: "grüße" } });
results.count = await client.callTool(
  { name: "plain_count", arguments: { to: 3 } },
  { onprogress: (step) => results.progress.push(step) },
);
results.greet = await client.callTool({ name: "plain_greet", arguments: {} });
results.fail = await client.callTool({ name: "plain_fail", arguments: { text: "secret words" } });
results.refuse = await client.callTool({ name: "strict_refuse", arguments: {} }).catch(caught);
results.crash = await client.callTool({ name: "strict_crash", arguments: {} }).catch(caught);
results.invalid = await client.callTool({ name: "strict_double", arguments: { number: "two" } }).catch(caught);
results.unknown = await client.callTool({ name: "strict_nothing", arguments: {} }).catch(caught);
if (era === "handshake") await transport.terminateSession();
await client.close();
process.stdout.write(JSON.stringify(results));
