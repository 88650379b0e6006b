// A server of the TypeScript SDK with its own OAuth: node account_sdk.mjs FOLDER
// Prints {"url": …} when it listens. `GET /login/NAME` chooses the user whom its sign-in page signs in.
import { createRequire } from "node:module";
import { randomUUID } from "node:crypto";
import { join } from "node:path";

const require = createRequire(join(process.argv[2], "account.cjs"));
const express = require("express");
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { mcpAuthRouter } = require("@modelcontextprotocol/sdk/server/auth/router.js");
const { requireBearerAuth } = require("@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js");
const { InvalidGrantError, InvalidTokenError } = require("@modelcontextprotocol/sdk/server/auth/errors.js");

const clients = new Map(), codes = new Map(), tokens = new Map(), refreshTokens = new Map();
let login = "octocat";

function issue(client, subject, scopes) {
  const access = `canary-${randomUUID()}`, refresh = `canary-${randomUUID()}`;
  tokens.set(access, { token: access, clientId: client.client_id, scopes, expiresAt: Math.floor(Date.now() / 1000) + 3600, extra: { subject } });
  refreshTokens.set(refresh, { subject, scopes });
  return { access_token: access, token_type: "bearer", expires_in: 3600, refresh_token: refresh, scope: scopes.join(" ") };
}

const provider = {
  clientsStore: {
    getClient: async (id) => clients.get(id),
    registerClient: async (client) => (clients.set(client.client_id, client), client),
  },
  authorize: async (client, params, response) => {
    const code = randomUUID();
    codes.set(code, { challenge: params.codeChallenge, subject: login, scopes: params.scopes ?? [] });
    const back = new URL(params.redirectUri);
    back.searchParams.set("code", code);
    if (params.state) back.searchParams.set("state", params.state);
    response.redirect(back.href);
  },
  challengeForAuthorizationCode: async (client, code) => codes.get(code).challenge,
  exchangeAuthorizationCode: async (client, code) => {
    const known = codes.get(code);
    if (!known) throw new InvalidGrantError("unknown code");
    codes.delete(code);
    return issue(client, known.subject, known.scopes);
  },
  exchangeRefreshToken: async (client, text) => {
    const known = refreshTokens.get(text);
    if (!known) throw new InvalidGrantError("unknown token");
    refreshTokens.delete(text);
    return issue(client, known.subject, known.scopes);
  },
  verifyAccessToken: async (token) => {
    const known = tokens.get(token);
    if (!known) throw new InvalidTokenError("unknown token");
    return known;
  },
  revokeToken: async (client, { token }) => { tokens.delete(token); refreshTokens.delete(token); },
};

const app = express();
app.use(express.json());
const listener = app.listen(0, "127.0.0.1", () => {
  const base = `http://127.0.0.1:${listener.address().port}`, url = new URL(`${base}/mcp`);
  app.use(mcpAuthRouter({ provider, issuerUrl: new URL(base), resourceServerUrl: url, scopesSupported: ["mcp:tools"] }));
  app.get("/login/:name", (request, response) => { login = request.params.name; response.send("ok"); });
  app.get("/expire", (request, response) => { tokens.clear(); response.send("ok"); });
  app.get("/count", (request, response) => response.json({ tokens: tokens.size, refresh: refreshTokens.size }));
  const bearer = requireBearerAuth({ verifier: provider, resourceMetadataUrl: `${base}/.well-known/oauth-protected-resource/mcp` });
  app.post("/mcp", bearer, async (request, response) => {
    const server = new McpServer({ name: "accounts", version: "1.0.0" });
    server.registerTool("whoami", { description: "Who calls." }, async (extra) => ({
      content: [{ type: "text", text: String(extra.authInfo.extra.subject) }],
    }));
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    response.on("close", () => { transport.close(); server.close(); });
    await server.connect(transport);
    await transport.handleRequest(request, response, request.body);
  });
  app.all("/mcp", bearer, (request, response) => response.status(405).end());
  process.stdout.write(JSON.stringify({ url: url.href }) + "\n");
});
process.stdin.on("end", () => process.exit(0)).resume();
