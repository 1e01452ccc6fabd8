// The only script of the pages. They work without it, apart from passkeys, which need one. Elements say what they want in
// data attributes:
//
//   <time datetime data-local>      is shown in the time zone of the reader
//   <section id data-live="a b">    is replaced by its new state after an event of one of these topics
//   <button data-action="NAME">     runs actions.NAME
//   <form data-confirm="QUESTION">  asks before it is sent
"use strict";

const byId = (id) => document.getElementById(id);

function showFault(text) {
  const fault = byId("fault");
  fault.textContent = text;
  fault.hidden = text === "";
}

async function send(method, path, body) {
  const answer = await fetch(path, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  const value = text === "" ? {} : JSON.parse(text);
  if (!answer.ok) {
    throw new Error(value.hint ? `${value.detail}: ${value.hint}` : value.detail);
  }
  return value;
}

// Times.

const localTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const localTitle = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

function makeTimesLocal(root) {
  for (const element of root.querySelectorAll("time[data-local]")) {
    const time = new Date(element.dateTime);
    if (!Number.isNaN(time.getTime())) {
      element.textContent = localTime.format(time);
      element.title = localTitle.format(time);
    }
  }
}

// Live sections. The new state is the same page, so the server decides alone what a page shows.

const stale = new Set();
let loading = false;
let loadAgain = false;

const isTyping = (section) => {
  const at = document.activeElement;
  return at !== null && section.contains(at) && at.matches("input, textarea, select");
};

const originals = new WeakMap(); // of a section: its markup as the server sent it

function keepOriginals(root) {
  for (const section of root.querySelectorAll("[data-live]")) {
    originals.set(section, section.innerHTML);
  }
}

function replaceSection(old, next) {
  if (originals.get(old) === next.innerHTML) {
    return;
  }
  originals.set(next, next.innerHTML);
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  for (const open of old.querySelectorAll("details[open][id]")) {
    const same = next.querySelector(`#${CSS.escape(open.id)}`);
    if (same !== null) {
      same.open = true;
    }
  }
  makeTimesLocal(next);
  next.classList.add("fresh");
  old.replaceWith(next);
  bindActions(next);
  if (focused !== "") {
    byId(focused)?.focus();
  }
}

async function loadStale() {
  if (loading) {
    loadAgain = true;
    return;
  }
  loading = true;
  try {
    do {
      loadAgain = false;
      const answer = await fetch(location.href, { headers: { Accept: "text/html", "Bailey-Unattended": "1" } });
      if (answer.redirected) { // signed out
        location.reload();
        return;
      }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of [...stale]) {
        const old = byId(id);
        const next = page.getElementById(id);
        if (old !== null && isTyping(old)) {
          continue; // it is replaced when the person leaves the field
        }
        stale.delete(id);
        if (old !== null && next !== null) {
          replaceSection(old, document.importNode(next, true));
        }
      }
    } while (loadAgain);
  } catch {
    // The next event, or the next connection, loads it.
  } finally {
    loading = false;
  }
}

function markStale(topic) {
  for (const section of document.querySelectorAll("[data-live]")) {
    if (topic === "" || section.dataset.live.split(" ").includes(topic)) {
      stale.add(section.id);
    }
  }
  if (stale.size > 0) {
    loadStale();
  }
}

const topics = ["approvals", "receipts", "hosts", "sandboxes", "operations"];
let events = null;
let missed = false;

function listen() {
  if (document.hidden) { // a browser has few connections for each server
    events?.close();
    events = null;
    missed = true;
    return;
  }
  if (events !== null || document.querySelector("[data-live]") === null) {
    return;
  }
  events = new EventSource(document.body.dataset.events);
  events.onopen = () => {
    document.body.dataset.connected = "";
    if (missed) {
      markStale("");
    }
    missed = false;
  };
  events.onerror = () => {
    delete document.body.dataset.connected;
    missed = true;
    if (events !== null && events.readyState === EventSource.CLOSED) {
      events = null;
      markStale(""); // if the session has ended, this opens the sign-in
    }
  };
  for (const topic of topics) {
    events.addEventListener(topic, () => markStale(topic));
  }
}

// Actions.

const toBase64 = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

const fromBase64 = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));

const actions = {
  async login(button) {
    const { ceremony, options } = await send("POST", "/api/v1/login/passkey/options");
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options.publicKey);
    const credential = await navigator.credentials.get({ publicKey });
    await send("POST", "/api/v1/login/passkey", { ceremony, credential: credential.toJSON() });
    location.assign(button.dataset.next);
  },
  async register() {
    const name = byId("passkey-name").value;
    const { ceremony, options } = await send("POST", "/api/v1/me/passkeys/options");
    const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options.publicKey);
    const credential = await navigator.credentials.create({ publicKey });
    await send("POST", "/api/v1/me/passkeys", { name, ceremony, credential: credential.toJSON() });
    location.reload();
  },
  async password() {
    const old = byId("old-password");
    await send("PUT", "/api/v1/me/password", { old: old ? old.value : "", new: byId("new-password").value });
    location.reload();
  },
  // approve signs the text that this page shows: the challenge is the SHA-256 of that text, computed here.
  async approve(button) {
    const text = new TextEncoder().encode(byId("text").textContent);
    const challenge = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
    const digest = Array.from(challenge, (b) => b.toString(16).padStart(2, "0")).join("");
    if (digest !== button.dataset.digest) {
      throw new Error("the text on this page is not the one that was asked: reload the page");
    }
    const allowCredentials = button.dataset.passkeys.split(" ").map((id) => ({ type: "public-key", id: fromBase64(id) }));
    const credential = await navigator.credentials.get({
      publicKey: { challenge, allowCredentials, rpId: location.hostname, userVerification: "required" },
    });
    const signature = JSON.stringify({
      credential: toBase64(credential.rawId),
      authenticatorData: toBase64(credential.response.authenticatorData),
      clientData: toBase64(credential.response.clientDataJSON),
      signature: toBase64(credential.response.signature),
    });
    const said = await send("POST", button.dataset.api, { grant: true, digest, signature });
    byId("said").textContent = said.granted
      ? `Granted by ${said.names.join(", ")}.`
      : `Your answer counts: ${(said.names ?? []).length} of ${said.count} have approved.`;
    markStale("approvals");
  },
  async push(button) {
    if (!("serviceWorker" in navigator) || !("PushManager" in window)) {
      throw new Error("this browser has no notices: on an iPhone or iPad, add this site to the home screen first");
    }
    if ((await Notification.requestPermission()) !== "granted") {
      throw new Error("the browser does not permit notices: permit them in its settings for this site");
    }
    await navigator.serviceWorker.register("/service-worker.js");
    const { pushManager } = await navigator.serviceWorker.ready;
    const applicationServerKey = fromBase64(button.dataset.key);
    const { endpoint, keys } = (await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey })).toJSON();
    await send("POST", "/api/v1/me/push", { endpoint, keys: { p256dh: keys.p256dh, auth: keys.auth } });
    location.reload();
  },
  async remove(button) {
    await send("DELETE", button.dataset.path);
    location.reload();
  },
};

function bindActions(root) {
  for (const button of root.querySelectorAll("button[data-action]")) {
    button.addEventListener("click", async () => {
      showFault("");
      button.disabled = true;
      try {
        await actions[button.dataset.action](button);
      } catch (error) {
        showFault(error.message);
      } finally {
        button.disabled = false;
      }
    });
  }
  for (const form of root.querySelectorAll("form[data-confirm]")) {
    form.addEventListener("submit", (event) => {
      if (!window.confirm(form.dataset.confirm)) {
        event.preventDefault();
      }
    });
  }
}

keepOriginals(document);
makeTimesLocal(document);
bindActions(document);
if (document.body.dataset.events !== undefined) {
  listen();
  document.addEventListener("visibilitychange", listen);
  document.addEventListener("focusout", () => {
    if (stale.size > 0) {
      setTimeout(loadStale);
    }
  });
}
