// The queue of unsent events: the browser stores them until the server has acknowledged them.
import { content } from "../viewer/api.js";

let prefix = "";

/** Select the stored drafts and events of one folder of annotations and one person. */
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

/** Store an event. Each event has its own key, so that two tabs do not overwrite each other. */
export function storeEvent(event) {
  localStorage.setItem(`${prefix}event:${event.id}`, JSON.stringify(event));
}

/** The events that the server has not acknowledged, in the order of their revisions, then times. */
export function unsentEvents() {
  return Object.keys(localStorage)
    .filter((key) => key.startsWith(`${prefix}event:`))
    .map((key) => JSON.parse(localStorage.getItem(key)))
    .sort((one, other) => one.revision - other.revision || one.at - other.at);
}

let sending = null;

/**
 * Send all waiting events. A second call during the first one waits for the first one. If an event
 * cannot be sent, throws an Error with a message for the user. The caller can try again later: the
 * server records each event id only once. If the server rejects an event, the event moves to a
 * separate key and is not sent again.
 */
export function sendUnsent() {
  sending ??= sendAll().finally(() => {
    sending = null;
  });
  return sending;
}

async function sendAll() {
  for (const event of unsentEvents()) {
    const key = `${prefix}event:${event.id}`;
    try {
      await content(() => fetch("/api/events", {
        method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(event),
      }));
    } catch (error) {
      if (error.status === undefined) throw new Error(`${error.message} This browser stores your submissions and sends them later.`);
      if ([400, 404, 409, 413].includes(error.status)) {
        localStorage.setItem(`${prefix}refused:${event.id}`, JSON.stringify({ event, why: error.message }));
        localStorage.removeItem(key);
      }
      throw error;
    }
    localStorage.removeItem(key);
  }
}
