// The service worker shows notices of questions and opens their pages. It caches nothing: what a page shows is always the
// server's present state, for the person who is signed in.
"use strict";

// pageOf returns a path of this server's pages of an organisation, or the first page.
function pageOf(data) {
  try {
    const url = new URL(data.json().url, self.location.origin);
    if (url.origin === self.location.origin && url.pathname.startsWith("/o/")) {
      return url.pathname;
    }
  } catch {
    // Not one of our messages.
  }
  return "/";
}

self.addEventListener("push", (event) => {
  const page = pageOf(event.data);
  event.waitUntil(
    self.registration.showNotification("A question waits for an answer", {
      body: "Open it to see what is asked.",
      tag: page,
      data: { page },
    }),
  );
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const { page } = event.notification.data;
  event.waitUntil(
    self.clients.matchAll({ type: "window" }).then((windows) => {
      const open = windows.find((w) => new URL(w.url).pathname === page);
      return open ? open.focus() : self.clients.openWindow(page);
    }),
  );
});
