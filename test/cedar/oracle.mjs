// The reference implementation of Cedar as a process: a job on each line of standard input, its answer on a line
// of standard output. The one argument is the node_modules directory that holds @cedar-policy/cedar-wasm.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(import.meta.url);
const cedar = require(join(process.argv[2], "@cedar-policy/cedar-wasm/nodejs/cedar_wasm.js"));

const words = (errors) => errors.map((e) => e.message + (e.help ? ": " + e.help : "")).join("; ");

// Types are checked for many rules at once, since the schema is read anew each time. A rule that does not parse
// would hide what is wrong with the others, so it is left out.
function validate({ rules, schema }) {
  const call = (staticPolicies) => cedar.validate({ validationSettings: { mode: "strict" }, schema, policies: { staticPolicies } });
  const parse = {}, errors = {}, good = {};
  let r = call(rules);
  if (r.type === "failure") {
    for (const [id, text] of Object.entries(rules)) {
      const p = cedar.checkParsePolicySet({ staticPolicies: { [id]: text } });
      if (p.type === "failure") parse[id] = words(p.errors);
      else good[id] = text;
    }
    r = call(good);
  }
  if (r.type === "failure") return { failure: words(r.errors) };
  for (const e of r.validationErrors) (errors[e.policyId] ??= []).push(words([e.error]));
  return { parse, errors };
}

function authorize({ rules, requests }) {
  const p = cedar.preparsePolicySet("p", { staticPolicies: rules });
  if (p.type === "failure") return { failure: words(p.errors) };
  const answers = requests.map((q) => {
    const r = cedar.statefulIsAuthorized({ ...q, preparsedPolicySetId: "p" });
    if (r.type === "failure") return { failure: words(r.errors) };
    const d = r.response.diagnostics;
    return { decision: r.response.decision, reasons: d.reason, errors: d.errors.map((e) => e.policyId) };
  });
  return { answers };
}

const jobs = { validate, authorize, version: () => ({ version: cedar.getCedarVersion() }) };

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const job = JSON.parse(line);
  let answer;
  try {
    answer = jobs[job.op](job);
  } catch (e) {
    answer = { failure: String(e) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
