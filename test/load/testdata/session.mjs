// One session after the other by the protocol's TypeScript SDK: node session.mjs BAILEY CALLS, names of marks on stdin, a line each.
// A line of JSON on stdout for each: what came of it.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [program, calls] = process.argv.slice(2);
let client, left = 0;
for await (const name of createInterface({ input: process.stdin })) {
  let text = "";
  try {
    if (!client || left-- === 0) {
      await client?.close();
      client = new Client({ name: "typescript-sdk", version: "1" });
      client.onclose = () => { client = undefined; };
      await client.connect(new StdioClientTransport({ command: program, args: ["serve"], env: process.env, stderr: "ignore" }));
      left = Number(calls);
    }
    text = JSON.stringify(await client.callTool({ name: "marks_make", arguments: { dir: ".", name } }));
  } catch (e) {
    text = String(e);
  }
  console.log(JSON.stringify({ name, text }));
}
await client?.close();
