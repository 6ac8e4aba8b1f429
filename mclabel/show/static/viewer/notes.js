// Flags and notes on solutions. They are stored only in this browser, by run and solution.
import { plural } from "./dom.js";

const PREFIX = "mclabel-note:";
export const MAX_NOTE = 2000; // characters
const MAX_FILE = 8 << 20; // characters of an imported file
const MAX_LINES = 20_000;
const MAX_ID = 300;

const kept = new Map(); // by key
const listeners = new Set();
let runs = { identities: [], names: [] };

const keyOf = (run, id) => `${run}:${id}`;

/** Load the stored notes, and follow later changes by other tabs. */
export function startNotes() {
  try {
    for (let i = 0; i < localStorage.length; i += 1) loadNote(localStorage.key(i));
  } catch {
    return; // storage is switched off: notes last until the page is closed, and `storeNote` throws
  }
  addEventListener("storage", (event) => {
    if (event.key === null) kept.clear();
    else if (event.key.startsWith(PREFIX)) loadNote(event.key);
    else return;
    for (const listener of listeners) listener();
  });
}

function loadNote(name) {
  if (!name.startsWith(PREFIX)) return;
  const note = parseNote(localStorage.getItem(name));
  if (note === null) kept.delete(name.slice(PREFIX.length));
  else kept.set(keyOf(note.run, note.solution_id), note);
}

/** Set the identities and the names of the runs, as received from the server. */
export function setRuns(identities, names) {
  runs = { identities, names };
}

export const identity = (run) => runs.identities[Number(run || 0)];

export const noteOf = (run, id) => kept.get(keyOf(identity(run), id)) ?? null;

export const allNotes = () => [...kept.values()];

export const notesOf = (run) => allNotes().filter((note) => note.run === identity(run));

export function onNotes(listener) {
  listeners.add(listener);
}

/**
 * Change the flag or the text of a note. A note without flag and text is deleted. Throws an Error if
 * the browser cannot store the note.
 */
export function setNote(run, row, changes) {
  const before = noteOf(run, row.solution_id);
  const note = {
    run: identity(run), run_name: runs.names[Number(run || 0)], problem_id: row.problem_id.text,
    solution_id: row.solution_id, sample_index: row.sample_index, digest: row.digest,
    flag: before?.flag ?? false, note: before?.note ?? "", ...changes, at: new Date().toISOString(),
  };
  try {
    storeNote(note);
  } finally {
    for (const listener of listeners) listener();
  }
}

export function removeNotes(notes) {
  for (const note of notes) storeNote({ ...note, flag: false, note: "" });
  for (const listener of listeners) listener();
}

function storeNote(note) {
  const key = keyOf(note.run, note.solution_id);
  const empty = !note.flag && note.note === "";
  if (empty) kept.delete(key);
  else kept.set(key, note);
  try {
    if (empty) localStorage.removeItem(PREFIX + key);
    else localStorage.setItem(PREFIX + key, JSON.stringify(note));
  } catch {
    throw new Error("This browser cannot store more notes: its storage is full or switched off. Download your notes before you leave the page.");
  }
}

/** Import notes from JSON lines. If a solution has two notes, the later one is kept. */
export function importNotes(text) {
  if (text.length > MAX_FILE) throw new Error(`The file has ${text.length.toLocaleString("en")} characters; the maximum is ${MAX_FILE.toLocaleString("en")}. Import a smaller file.`);
  const lines = text.split("\n").map((line, i) => [i + 1, line.trim()]).filter(([, line]) => line !== "");
  if (lines.length > MAX_LINES) throw new Error(`The file has ${lines.length.toLocaleString("en")} lines; the maximum is ${MAX_LINES.toLocaleString("en")}. Split the file.`);
  const wrong = [];
  let taken = 0;
  let older = 0;
  for (const [number, line] of lines) {
    const note = parseNote(line);
    if (note === null) {
      wrong.push(number);
      continue;
    }
    const mine = kept.get(keyOf(note.run, note.solution_id));
    if (mine !== undefined && Date.parse(mine.at) >= Date.parse(note.at)) older += 1;
    else {
      storeNote(note);
      taken += 1;
    }
  }
  for (const listener of listeners) listener();
  const parts = [`${plural(taken, "note")} imported`];
  if (older) parts.push(`${older} already stored in the same or a newer version`);
  if (wrong.length) parts.push(`${plural(wrong.length, "line")} without a note, the first is line ${wrong[0]}`);
  return `${parts.join(", ")}.`;
}

/** Parse a line of JSON as a note, without unknown fields; null if the line is not a valid note. */
function parseNote(line) {
  let given;
  try {
    given = JSON.parse(line);
  } catch {
    return null;
  }
  const id = (text) => typeof text === "string" && text !== "" && text.length <= MAX_ID;
  const text = (part, most) => (typeof part === "string" ? part.slice(0, most) : "");
  if (given === null || typeof given !== "object" || !id(given.run) || !id(given.solution_id)) return null;
  if (typeof given.flag !== "boolean" || typeof given.note !== "string" || Number.isNaN(Date.parse(given.at))) return null;
  if (!given.flag && given.note === "") return null;
  return {
    run: given.run, run_name: text(given.run_name, MAX_ID), problem_id: text(given.problem_id, MAX_ID),
    solution_id: given.solution_id, sample_index: Number.isInteger(given.sample_index) ? given.sample_index : null,
    digest: text(given.digest, MAX_ID), flag: given.flag, note: text(given.note, MAX_NOTE), at: given.at,
  };
}
