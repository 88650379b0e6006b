// The TypeScript SDK's v2 client signs in by itself: node oauth_v2.mjs FOLDER URL ERA [DOCUMENT]
// A line {"open": URL} asks for a browser; the callback's query comes back as a line. What it met is printed last.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { join } from "node:path";

const [folder, url, era, document] = process.argv.slice(2);
const require = createRequire(join(folder, "journey.cjs"));
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = require("@modelcontextprotocol/client");

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (thing) => process.stdout.write(JSON.stringify(thing) + "\n");
const kept = {};
let told;
const provider = {
  redirectUrl: "http://127.0.0.1:8765/callback",
  // With a document of its own it need not register.
  ...(document && { clientMetadataUrl: document }),
  clientMetadata: {
    client_name: "TypeScript SDK",
    redirect_uris: ["http://127.0.0.1:8765/callback"],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  },
  state: () => "st4te",
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; kept.count = (kept.count ?? 0) + 1; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (state) => { kept.discovery = state; },
  discoveryState: () => kept.discovery,
  redirectToAuthorization: async (where) => {
    say({ open: where.toString() });
    told = JSON.parse((await lines.next()).value);
  },
};

const mode = era === "handshake" ? "legacy" : { pin: era };
async function connected() {
  const client = new Client({ name: "signing-in", version: "1" }, { versionNegotiation: { mode } });
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  await client.connect(transport);
  return [client, transport];
}
async function again(transport, work) {
  for (let tries = 0; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof UnauthorizedError) || tries === 2) throw error;
      const query = new URLSearchParams({ code: told.code, iss: told.iss, state: told.state });
      await finish(transport(), query);
    }
  }
}
async function finish(transport, query) {
  try {
    await transport.finishAuth(query);
  } catch (error) {
    await transport.finishAuth(query.get("code"));
  }
}

let last = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
let [client, transport] = await again(() => last, connected);
last = transport;
const met = { tools: (await client.listTools()).tools.map((tool) => tool.name) };
met.looked = (await client.callTool({ name: "lab_look", arguments: {} })).content[0].text;
// An access token that is no longer good, and a refresh token that is.
const before = kept.count;
kept.tokens = { ...kept.tokens, access_token: "x.y.z" };
await client.callTool({ name: "lab_look", arguments: {} });
met.refreshed = kept.count === before + 1;
met.saved = (await again(() => last, () => client.callTool({ name: "lab_save", arguments: { text: "x" } }))).content[0].text;
met.scope = kept.tokens.scope;
met.client = kept.client.client_id;
say(met);
await client.close();
process.exit(0);
