// A company's identity provider: node company_idp.mjs FOLDER OPTIONS
// OPTIONS is JSON: redirect_uri, logout_uri, and the variants below. Prints {"issuer": …} when it listens.
//   strict: refuse `resource` and offer no registration   short: tokens of 5 s, rotating refresh tokens
//   no_refresh: issue no refresh tokens   key: public JWK of the client (private_key_jwt)   overage: groups by Graph only
// Users sign in on its development pages. Their groups are changed by lines of JSON on stdin:
//   {"user": "alice", "groups": ["dev"]}   {"remove": "alice"}   {"logout": "alice"}   {"down": true}
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

// Its notices go to stdout, which carries the answers to orders.
console.info = console.log = console.warn = () => {};
const [folder, text] = process.argv.slice(2);
const options = JSON.parse(text);
const require = createRequire(join(folder, "company.cjs"));
const { Provider, errors } = await import(pathToFileURL(require.resolve("oidc-provider")).href);

const users = new Map();
const user = (id) => users.get(id) ?? users.set(id, { groups: ["staff"] }).get(id);
let down = false;
const seen = [];

const server = createServer();
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [{
    client_id: "gatehouse", redirect_uris: [options.redirect_uri],
    grant_types: ["authorization_code", "refresh_token"],
    ...(options.key
      ? { token_endpoint_auth_method: "private_key_jwt", token_endpoint_auth_signing_alg: "ES256", jwks: { keys: [options.key] } }
      : { client_secret: "s3cret/with+signs" }),
    ...(options.logout_uri ? { backchannel_logout_uri: options.logout_uri } : {}),
  }],
  cookies: { keys: ["for tests"] },
  claims: {
    openid: ["sub", "groups", "_claim_names", "_claim_sources", "tid", "oid"], profile: ["name"], email: ["email", "email_verified"],
  },
  conformIdTokenClaims: options.thin === true,
  pkce: { required: () => true },
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: options.strict !== true },
    backchannelLogout: { enabled: true },
    resourceIndicators: {
      enabled: options.strict === true,
      getResourceServerInfo: async () => { throw new errors.InvalidTarget("resource is not supported"); },
    },
  },
  // Its own fetch refuses loopback addresses.
  fetch: (url, init) => fetch(url, { ...init, dispatcher: undefined, signal: undefined }),
  ttl: options.short ? { AccessToken: 5, IdToken: 5, RefreshToken: 3600 } : {},
  rotateRefreshToken: options.short === true,
  issueRefreshToken: async () => options.no_refresh !== true,
  findAccount: async (ctx, id) => users.get(id) === null ? undefined : {
    accountId: id,
    claims: async () => ({
      sub: id, name: `${id} of the company`, email: `${id}@example.com`, email_verified: user(id).verified !== false,
      tid: "directory-1", oid: `oid-${id}`,
      ...(options.overage
        ? { _claim_names: { groups: "src1" }, _claim_sources: { src1: { endpoint: "http://127.0.0.1:9/never" } } }
        : { groups: user(id).groups }),
    }),
  },
});
const answer = provider.callback();
server.on("request", (request, response) => {
  seen.push(`${request.method} ${request.url}`);
  if (down) return void response.writeHead(503).end("{}");
  if (request.url === "/v1.0/me/getMemberObjects") {
    const allowed = options.overage === "readable" && request.headers.authorization?.startsWith("Bearer ");
    response.writeHead(allowed ? 200 : 403, { "content-type": "application/json" });
    return void response.end(JSON.stringify({ value: ["staff", "dev"] }));
  }
  answer(request, response);
});

async function logOut(id) {
  const client = await provider.Client.find("gatehouse");
  await client.backchannelLogout(id, options.sid);
}

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");
say({ issuer });
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  if (order.user) users.set(order.user, { groups: order.groups, verified: order.verified });
  if (order.remove) users.set(order.remove, null);
  if ("down" in order) down = order.down;
  if (order.logout) await logOut(order.logout);
  say({ done: true, seen: seen.splice(0) });
}
process.exit(0);
