// The TypeScript SDK's v2 client on a journey through the gateway: node journey_v2.mjs FOLDER URL KEY ERA
// What it met is printed as one JSON object.
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
const met = { asked: [], progress: [] };
client.setRequestHandler("elicitation/create", async (request) => {
  met.asked.push(request.params.message);
  return { action: "accept", content: { name: "Ada" } };
});

const caught = (error) => ({ name: error.name, code: error.code, message: error.message, data: error.data });
const headers = { Authorization: `Bearer ${key}` };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
await client.connect(transport);
met.server = client.getServerVersion();
met.version = client.getNegotiatedProtocolVersion();
met.tools = (await client.listTools()).tools;
met.echo = await client.callTool({ name: "plain_echo", arguments: { text: "grüße" } });
met.count = await client.callTool(
  { name: "plain_count", arguments: { to: 3 } },
  { onprogress: (step) => met.progress.push(step) },
);
met.greet = await client.callTool({ name: "plain_greet", arguments: {} });
met.fail = await client.callTool({ name: "plain_fail", arguments: { text: "secret words" } });
met.refuse = await client.callTool({ name: "strict_refuse", arguments: {} }).catch(caught);
met.crash = await client.callTool({ name: "strict_crash", arguments: {} }).catch(caught);
met.invalid = await client.callTool({ name: "strict_double", arguments: { number: "two" } }).catch(caught);
met.unknown = await client.callTool({ name: "strict_nothing", arguments: {} }).catch(caught);
if (era === "handshake") await transport.terminateSession();
await client.close();
process.stdout.write(JSON.stringify(met));
