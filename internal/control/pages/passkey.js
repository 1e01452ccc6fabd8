// The only script of the pages: passkeys need one. Buttons name their request in data attributes.
"use strict";

const fault = document.getElementById("fault");

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

const actions = {
  async login() {
    const { ceremony, options } = await send("POST", "/api/v1/login/passkey/options");
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options.publicKey);
    const credential = await navigator.credentials.get({ publicKey });
    await send("POST", "/api/v1/login/passkey", { ceremony, credential: credential.toJSON() });
    location.assign("/");
  },
  async register() {
    const name = document.getElementById("passkey-name").value;
    const { ceremony, options } = await send("POST", "/api/v1/me/passkeys/options");
    const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options.publicKey);
    const credential = await navigator.credentials.create({ publicKey });
    await send("POST", "/api/v1/me/passkeys", { name, ceremony, credential: credential.toJSON() });
    location.reload();
  },
  async password() {
    const old = document.getElementById("old-password");
    await send("PUT", "/api/v1/me/password", {
      old: old ? old.value : "",
      new: document.getElementById("new-password").value,
    });
    location.reload();
  },
  async remove(button) {
    await send("DELETE", button.dataset.path);
    location.reload();
  },
};

for (const button of document.querySelectorAll("button[data-action]")) {
  button.addEventListener("click", async () => {
    fault.hidden = true;
    button.disabled = true;
    try {
      await actions[button.dataset.action](button);
    } catch (error) {
      fault.textContent = error.message;
      fault.hidden = false;
    } finally {
      button.disabled = false;
    }
  });
}
