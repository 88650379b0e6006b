// An external identity provider: node oidc.mjs FOLDER RESOURCE
// Prints {"issuer": …} when it listens. Users sign in on its development pages.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const [folder, resource] = process.argv.slice(2);
const require = createRequire(join(folder, "oidc.cjs"));
const { Provider } = await import(pathToFileURL(require.resolve("oidc-provider")).href);

const server = createServer();
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "robot", client_secret: "robot-secret", grant_types: ["client_credentials"],
      redirect_uris: [], response_types: [],
    },
    {
      client_id: "gatehouse", client_secret: "gatehouse-secret", grant_types: ["client_credentials"],
      redirect_uris: [], response_types: [],
    },
    {
      client_id: "console", client_secret: "console-secret", grant_types: ["authorization_code"],
      redirect_uris: [new URL("/console/signed-in", resource).href],
    },
  ],
  scopes: ["openid", "offline_access", "mcp:list", "mcp:call", "mcp:call:write", "mcp:admin"],
  cookies: { keys: ["for tests"] },
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    clientCredentials: { enabled: true },
    introspection: { enabled: true, allowedPolicy: async () => true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: async () => resource,
      useGrantedResource: async () => true,
      getResourceServerInfo: async (ctx, indicator, client) => ({
        scope: "mcp:list mcp:call mcp:call:write mcp:admin",
        audience: indicator,
        accessTokenTTL: 600,
        accessTokenFormat: client.clientId === "robot" && ctx.get("x-opaque") ? "opaque" : "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
  extraTokenClaims: async (ctx, token) => ({
    groups: ["dev"], org: "o-1", roles: token.accountId === "alice" ? ["chief"] : ["worker"],
  }),
  issueRefreshToken: async () => true,
  findAccount: async (ctx, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
});
server.on("request", provider.callback());
process.stdout.write(JSON.stringify({ issuer }) + "\n");
process.stdin.on("end", () => process.exit(0)).resume();
