// A real OpenID provider for a test: it signs in the account of $SUBJECT without asking, and prints its issuer.
// Arguments: the node_modules directory, the redirect URI.
import { createServer } from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, redirect] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(join(modules, "oidc-provider/lib/index.js")));

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: "bailey", client_secret: "the client secret of the test", redirect_uris: [redirect] }],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"] },
    conformIdTokenClaims: false,
    cookies: { keys: ["test"] },
    features: { devInteractions: { enabled: false } },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: id !== "unverified", name: id }),
    }),
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    pkce: { required: () => true },
  });
  const handle = provider.callback();
  server.on("request", async (request, response) => {
    if (!request.url.startsWith("/interaction/")) {
      return handle(request, response);
    }
    const { prompt, params, session } = await provider.interactionDetails(request, response);
    let result = { login: { accountId: process.env.SUBJECT } };
    if (prompt.name === "consent") {
      const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
      grant.addOIDCScope("openid email profile");
      result = { consent: { grantId: await grant.save() } };
    }
    await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
  });
  console.log(issuer);
});
