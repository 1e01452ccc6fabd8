// Verifies a receipt in the page: each shown line of the ledger is in the tree of the shown checkpoint (RFC 6962), and
// the host's key and the server's witness have signed that checkpoint (c2sp.org/signed-note, tlog-cosignature). The
// format is specified in the package audit. Everything is computed from the bytes that the page shows.
"use strict";

const baileyProof = (() => {
  const encoder = new TextEncoder();
  const typeLog = 1;
  const typeWitness = 4;

  const join = (...parts) => {
    const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
    let at = 0;
    for (const p of parts) {
      all.set(p, at);
      at += p.length;
    }
    return all;
  };
  const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  const fromHex = (text) => {
    if (!/^([0-9a-f]{2})*$/.test(text)) {
      throw new Error("a hash is not hexadecimal");
    }
    return Uint8Array.from(text.match(/../g) ?? [], (b) => parseInt(b, 16));
  };
  const fromBase64 = (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    if (btoa(String.fromCharCode(...bytes)) !== text) {
      throw new Error("a text is not in the one form of base64");
    }
    return bytes;
  };
  const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);
  const leafHash = (line) => sha256(join(Uint8Array.of(0), encoder.encode(line)));
  const nodeHash = (left, right) => sha256(join(Uint8Array.of(1), left, right));

  // rootOf computes the root that a proof leads to (RFC 9162, section 2.1.3.2).
  async function rootOf(index, size, leaf, path) {
    let at = BigInt(index);
    let last = BigInt(size) - 1n;
    if (at < 0n || at > last) {
      throw new Error("the tree has no such entry");
    }
    let hash = leaf;
    for (const other of path) {
      if (last === 0n) {
        throw new Error("the proof is too long");
      }
      if ((at & 1n) === 1n || at === last) {
        hash = await nodeHash(other, hash);
        while ((at & 1n) === 0n && at !== 0n) {
          at >>= 1n;
          last >>= 1n;
        }
      } else {
        hash = await nodeHash(hash, other);
      }
      at >>= 1n;
      last >>= 1n;
    }
    if (last !== 0n) {
      throw new Error("the proof is too short");
    }
    return hash;
  }

  // parseKey reads a verifier key, NAME+ID+BASE64, and checks its id.
  async function parseKey(text) {
    const [, name, id, base64] = /^([^+\s]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)$/.exec(text.trim()) ?? [];
    const raw = name === undefined ? [] : fromBase64(base64);
    if (raw.length !== 33 || (raw[0] !== typeLog && raw[0] !== typeWitness)) {
      throw new Error("this is not a verifier key: NAME+ID+KEY");
    }
    const sum = await sha256(join(encoder.encode(name + "\n"), raw));
    if (toHex(sum.slice(0, 4)) !== id) {
      throw new Error("the id of the key is not that of its bytes");
    }
    return { text: text.trim(), name, id, type: raw[0], bytes: raw.slice(1) };
  }

  // parseNote reads a signed checkpoint.
  function parseNote(note) {
    const end = note.indexOf("\n\n");
    const text = note.slice(0, end + 1);
    const [origin, size, root, rest] = text.split("\n");
    if (end < 0 || rest !== "" || text.split("\n").length !== 4 || !/^(0|[1-9][0-9]{0,18})$/.test(size)) {
      throw new Error("this is not a checkpoint: a log, a number of entries and a root");
    }
    const signatures = note.slice(end + 2).split("\n").slice(0, -1).map((line) => {
      const [, name, base64] = /^— ([^ ]+) ([A-Za-z0-9+/=]+)$/.exec(line) ?? [];
      const raw = name === undefined ? [] : fromBase64(base64);
      if (raw.length < 5) {
        throw new Error("a signature of the checkpoint is malformed");
      }
      return { name, id: toHex(raw.slice(0, 4)), bytes: raw.slice(4) };
    });
    return { text, origin, size, root: fromBase64(root), signatures };
  }

  async function verifyEd25519(key, message, signature) {
    let imported;
    try {
      imported = await crypto.subtle.importKey("raw", key.bytes, { name: "Ed25519" }, false, ["verify"]);
    } catch (error) {
      const missing = new Error("this browser has no Ed25519, so it cannot verify signatures");
      missing.unsupported = true;
      throw missing;
    }
    return crypto.subtle.verify({ name: "Ed25519" }, imported, signature, message);
  }

  // verifySignature verifies the note by a key. The result is the time of a cosignature, or null for that of the log.
  async function verifySignature(note, key) {
    const found = note.signatures.filter((s) => s.name === key.name && s.id === key.id);
    if (found.length !== 1) {
      throw new Error(`the checkpoint is not signed by ${key.name}+${key.id}`);
    }
    let { bytes } = found[0];
    let message = encoder.encode(note.text);
    let time = null;
    if (key.type === typeWitness) {
      const seconds = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0);
      message = encoder.encode(`cosignature/v1\ntime ${seconds}\n${note.text}`);
      bytes = bytes.slice(8);
      time = new Date(Number(seconds) * 1000);
    }
    if (bytes.length !== 64 || !(await verifyEd25519(key, message, bytes))) {
      throw new Error(`the signature of ${key.name}+${key.id} is invalid: the checkpoint was changed`);
    }
    return time;
  }

  // followKeys returns the key that must have signed: the given one, or the last one to which signed changes lead.
  async function followKeys(given, entries) {
    let last = given;
    let trusted = false;
    for (const e of entries.filter((e) => e.kind === "key")) {
      const by = await parseKey(e.data.old ?? e.data.key);
      const next = await parseKey(e.data.key);
      const text = `bailey.audit/key/v1\n${e.data.old ?? "none"}\n${e.data.key}\n`;
      if (!(await verifyEd25519(by, encoder.encode(text), fromBase64(e.data.signature)))) {
        throw new Error(`the change of the host's key in entry ${e.seq} is not signed`);
      }
      trusted = trusted || by.text === given.text || next.text === given.text;
      last = next;
    }
    if (last !== given && !trusted) {
      throw new Error("the ledger announces other keys than the one given");
    }
    return last;
  }

  // parseLine reads a line of the ledger. Its bytes are what is verified; this is for comparing what the page says.
  function parseLine(line) {
    const { entry } = JSON.parse(line);
    return { seq: entry.seq, kind: entry.kind, data: entry.data };
  }

  // verify checks everything and returns the steps, each {ok, text}, and the entries. A step that the browser cannot do has
  // ok null. Nothing is thrown.
  async function verify({ entries, checkpoint, key, witness }) {
    const steps = [];
    const step = async (f) => {
      try {
        steps.push({ ok: true, text: await f() });
        return true;
      } catch (error) {
        steps.push({ ok: error.unsupported ? null : false, text: error.message });
        return false;
      }
    };
    const read = [];
    let note = null;
    if (globalThis.crypto?.subtle === undefined) {
      return { steps: [{ ok: null, text: "this page was not opened over https, so the browser offers no cryptography" }], read };
    }
    await step(async () => {
      note = parseNote(checkpoint);
      return `The checkpoint is of ${note.size} entries of ${note.origin}.`;
    });
    for (const e of entries) {
      await step(async () => {
        if (note === null) {
          throw new Error(`Entry ${e.seq}: there is no checkpoint to compare with`);
        }
        const root = await rootOf(BigInt(e.seq) - 1n, note.size, await leafHash(e.line), e.path.map(fromHex));
        if (!same(root, note.root)) {
          throw new Error(`Entry ${e.seq} is not in the tree: its bytes, its proof or the checkpoint were changed`);
        }
        const parsed = parseLine(e.line);
        if (String(parsed.seq) !== String(e.seq)) {
          throw new Error(`Entry ${e.seq} says that it is entry ${parsed.seq}`);
        }
        read.push(parsed);
        return `Entry ${e.seq} (${parsed.kind}), exactly as shown, is in the tree: ${e.path.length} hashes lead to its root.`;
      });
    }
    await step(async () => {
      const given = await parseKey(key);
      const signer = await followKeys(given, read);
      if (note === null || signer.name !== note.origin) {
        throw new Error("the key is that of another ledger than the checkpoint");
      }
      await verifySignature(note, signer);
      return `The host's key ${signer.name}+${signer.id} has signed the checkpoint.`;
    });
    if (witness) {
      await step(async () => {
        if (note === null) {
          throw new Error("there is no checkpoint that the witness could have signed");
        }
        const k = await parseKey(witness);
        const time = await verifySignature(note, k);
        return `The server's witness ${k.name}+${k.id} cosigned it at ${time.toISOString()}: it knew no other history.`;
      });
    }
    return { steps, read };
  }

  // compare returns the shown values that are not those of the verified entries.
  function compare(shown, read) {
    return shown.filter(({ field, text }) => {
      const [kind, ...names] = field.split(".");
      const entry = read.find((e) => e.kind === kind);
      const value = names.reduce((v, name) => v?.[name], entry?.data);
      return String(value ?? "") !== text;
    }).map(({ field, text }) => `The page shows ${JSON.stringify(text)} as ${field}, and the verified entry does not.`);
  }

  return { verify, compare };
})();

if (typeof document !== "undefined") {
  const proof = document.querySelector("[data-proof]");
  const find = (name) => proof.querySelector(`[data-proof-${name}]`);

  const verifyPage = async () => {
    const state = find("state");
    state.textContent = "Verifying…";
    const entries = Array.from(proof.querySelectorAll("[data-proof-entry]"), (e) => ({
      seq: e.dataset.proofEntry,
      path: e.dataset.proofPath.split(" ").filter((h) => h !== ""),
      line: e.querySelector("pre").textContent + "\n",
    }));
    const { steps, read } = await baileyProof.verify({
      entries,
      checkpoint: find("checkpoint").textContent + "\n",
      key: find("key").value,
      witness: proof.dataset.proofWitness,
    });
    const shown = Array.from(document.querySelectorAll("[data-proof-field]"), (e) => ({
      field: e.dataset.proofField, text: e.textContent,
    }));
    for (const text of baileyProof.compare(shown, read)) {
      steps.push({ ok: false, text });
    }
    const failed = steps.some((s) => s.ok === false);
    const unsure = steps.some((s) => s.ok === null);
    proof.dataset.proof = failed ? "failed" : unsure ? "unsure" : "verified";
    state.className = failed ? "fault" : "note";
    state.textContent = failed
      ? "Not verified: see the step that failed. Do not rely on what this page shows."
      : unsure
        ? "Verified in part: this browser could not do every step. Verify the file offline."
        : "Verified in this browser, from the bytes below and the key of the host.";
    find("steps").replaceChildren(...steps.map((s) => {
      const item = document.createElement("li");
      item.textContent = (s.ok === true ? "✓ " : s.ok === false ? "✗ Failed: " : "– Not done: ") + s.text;
      return item;
    }));
  };
  if (proof !== null) {
    find("again").addEventListener("click", verifyPage);
    find("again").hidden = false;
    verifyPage();
  }
} else {
  globalThis.baileyProof = baileyProof; // for the tests
}
