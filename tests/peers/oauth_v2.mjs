// Signs in to the gateway with the TypeScript SDK's v2 client: node oauth_v2.mjs FOLDER URL ERA [DOCUMENT]
// Prints {"open": URL} to request a browser and reads the callback's query as one line. Prints the results last.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { join } from "node:path";

const [folder, url, era, document] = process.argv.slice(2);
const require = createRequire(join(folder, "journey.cjs"));
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = require("@modelcontextprotocol/client");

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const print = (thing) => process.stdout.write(JSON.stringify(thing) + "\n");
const stored = {};
let callback;
const provider = {
  redirectUrl: "http://127.0.0.1:8765/callback",
  // A client with a metadata document does not need to register.
  ...(document && { clientMetadataUrl: document }),
  clientMetadata: {
    client_name: "TypeScript SDK",
    redirect_uris: ["http://127.0.0.1:8765/callback"],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  },
  state: () => "st4te",
  clientInformation: () => stored.client,
  saveClientInformation: (client) => { stored.client = client; },
  tokens: () => stored.tokens,
  saveTokens: (tokens) => { stored.tokens = tokens; stored.count = (stored.count ?? 0) + 1; },
  saveCodeVerifier: (verifier) => { stored.verifier = verifier; },
  codeVerifier: () => stored.verifier,
  saveDiscoveryState: (state) => { stored.discovery = state; },
  discoveryState: () => stored.discovery,
  redirectToAuthorization: async (where) => {
    print({ open: where.toString() });
    callback = JSON.parse((await lines.next()).value);
  },
};

const mode = era === "handshake" ? "legacy" : { pin: era };
async function connect() {
  const client = new Client({ name: "signing-in", version: "1" }, { versionNegotiation: { mode } });
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  await client.connect(transport);
  return [client, transport];
}
async function retryAfterSignIn(transport, work) {
  for (let tries = 0; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof UnauthorizedError) || tries === 2) throw error;
      const query = new URLSearchParams({ code: callback.code, iss: callback.iss, state: callback.state });
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
let [client, transport] = await retryAfterSignIn(() => last, connect);
last = transport;
const results = { tools: (await client.listTools()).tools.map((tool) => tool.name) };
results.looked = (await client.callTool({ name: "lab_look", arguments: {} })).content[0].text;
// An invalid access token with a valid refresh token.
const before = stored.count;
stored.tokens = { ...stored.tokens, access_token: "x.y.z" };
await client.callTool({ name: "lab_look", arguments: {} });
results.refreshed = stored.count === before + 1;
results.saved = (await retryAfterSignIn(() => last, () => client.callTool({ name: "lab_save", arguments: { text: "x" } }))).content[0].text;
results.scope = stored.tokens.scope;
results.client = stored.client.client_id;
print(results);
await client.close();
process.exit(0);
