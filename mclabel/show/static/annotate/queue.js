// What is to be sent: kept in the browser until the server says that it is on its disk.

let prefix = "";

/** Keep what belongs to this folder of annotations and this person. */
export function openQueue(folder, person) {
  prefix = `mclabel-annotate:${folder}:${person}:`;
}

const drafts = (id) => `${prefix}draft:${id}`;

export function loadDraft(id) {
  const text = localStorage.getItem(drafts(id));
  return text === null ? null : JSON.parse(text);
}

export function saveDraft(id, draft) {
  localStorage.setItem(drafts(id), JSON.stringify(draft));
}

export function dropDraft(id) {
  localStorage.removeItem(drafts(id));
}

/** Keep an event. Each has a key of its own, so that two tabs do not overwrite each other. */
export function keep(event) {
  localStorage.setItem(`${prefix}event:${event.id}`, JSON.stringify(event));
}

/** The events that the server has not acknowledged: first opinions first, whatever the clock said. */
export function waiting() {
  return Object.keys(localStorage)
    .filter((key) => key.startsWith(`${prefix}event:`))
    .map((key) => JSON.parse(localStorage.getItem(key)))
    .sort((one, other) => one.revision - other.revision || one.at - other.at);
}

let sending = null;

/**
 * Send what waits. A second call while one is under way waits for it. Throws an Error for the
 * reader if something stays: then try again later, for an id is recorded once however often it
 * comes. What the server will never take is put aside, under its own key.
 */
export function flush() {
  sending ??= sendAll().finally(() => {
    sending = null;
  });
  return sending;
}

async function sendAll() {
  for (const event of waiting()) {
    const key = `${prefix}event:${event.id}`;
    let response;
    try {
      response = await fetch("/api/events", {
        method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(event),
      });
    } catch {
      throw new Error("The server does not answer. What you submit is kept in this browser, and sent later.");
    }
    if (!response.ok) {
      const why = await reason(response);
      if ([400, 404, 409, 413].includes(response.status)) {
        localStorage.setItem(`${prefix}refused:${event.id}`, JSON.stringify({ event, why }));
        localStorage.removeItem(key);
      }
      throw new Error(why);
    }
    localStorage.removeItem(key);
  }
}

/** The server's answer as an object. Throws an Error for the reader. */
export async function get(path, parameters = {}) {
  let response;
  try {
    response = await fetch(`${path}?${new URLSearchParams(parameters)}`);
  } catch {
    throw new Error("The server does not answer. Start mclabel annotate again, and open your address.");
  }
  if (!response.ok) throw new Error(await reason(response));
  return response.json();
}

async function reason(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error;
  } catch {
    return response.status === 403 ? "This address is of an earlier start. Open the one that mclabel annotate printed." : text;
  }
}
