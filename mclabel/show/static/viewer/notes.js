// Flags and notes on solutions: kept by this browser alone, by run and solution.
import { plural } from "./dom.js";

const PREFIX = "mclabel-note:";
export const MAX_NOTE = 2000; // characters
const MAX_FILE = 8 << 20; // characters of what is imported
const MAX_LINES = 20_000;
const MAX_ID = 300;

const kept = new Map(); // by key
const listeners = new Set();
let runs = { identities: [], names: [] };

const keyOf = (run, id) => `${run}:${id}`;

/** Take what was kept before, and what other tabs change from now on. */
export function startNotes() {
  try {
    for (let i = 0; i < localStorage.length; i += 1) take(localStorage.key(i));
  } catch {
    return; // storage is off: notes last as long as the page, and saving says so
  }
  addEventListener("storage", (event) => {
    if (event.key === null) kept.clear();
    else if (event.key.startsWith(PREFIX)) take(event.key);
    else return;
    for (const listener of listeners) listener();
  });
}

function take(name) {
  if (!name.startsWith(PREFIX)) return;
  const note = read(localStorage.getItem(name));
  if (note === null) kept.delete(name.slice(PREFIX.length));
  else kept.set(keyOf(note.run, note.solution_id), note);
}

/** What the server says the runs are. */
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

/** Set flag or text of a note; without either there is none. Throws if the browser keeps nothing. */
export function setNote(run, row, changes) {
  const before = noteOf(run, row.solution_id);
  const note = {
    run: identity(run), run_name: runs.names[Number(run || 0)], problem_id: row.problem_id.text,
    solution_id: row.solution_id, sample_index: row.sample_index, digest: row.digest,
    flag: before?.flag ?? false, note: before?.note ?? "", ...changes, at: new Date().toISOString(),
  };
  try {
    keep(note);
  } finally {
    for (const listener of listeners) listener();
  }
}

export function removeNotes(notes) {
  for (const note of notes) keep({ ...note, flag: false, note: "" });
  for (const listener of listeners) listener();
}

function keep(note) {
  const key = keyOf(note.run, note.solution_id);
  const empty = !note.flag && note.note === "";
  if (empty) kept.delete(key);
  else kept.set(key, note);
  try {
    if (empty) localStorage.removeItem(PREFIX + key);
    else localStorage.setItem(PREFIX + key, JSON.stringify(note));
  } catch {
    throw new Error("This browser keeps no more notes: its storage is full or off. Download them before you leave the page.");
  }
}

/** Take over notes from JSON lines; of two of one solution the later stays. */
export function importNotes(text) {
  if (text.length > MAX_FILE) throw new Error(`The file has ${text.length.toLocaleString("en")} characters; at most ${MAX_FILE.toLocaleString("en")} are read.`);
  const lines = text.split("\n").map((line, i) => [i + 1, line.trim()]).filter(([, line]) => line !== "");
  if (lines.length > MAX_LINES) throw new Error(`The file has ${lines.length.toLocaleString("en")} lines; at most ${MAX_LINES.toLocaleString("en")} are read.`);
  const wrong = [];
  let taken = 0;
  let older = 0;
  for (const [number, line] of lines) {
    const note = read(line);
    if (note === null) {
      wrong.push(number);
      continue;
    }
    const mine = kept.get(keyOf(note.run, note.solution_id));
    if (mine !== undefined && Date.parse(mine.at) >= Date.parse(note.at)) older += 1;
    else {
      keep(note);
      taken += 1;
    }
  }
  for (const listener of listeners) listener();
  const parts = [`${plural(taken, "note")} taken over`];
  if (older) parts.push(`${older} as new here already`);
  if (wrong.length) parts.push(`${plural(wrong.length, "line")} without a note, the first is line ${wrong[0]}`);
  return `${parts.join(", ")}.`;
}

/** A note from a line of JSON, with nothing else in it; null if it is none. */
function read(line) {
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
