// The export dialog: export of the solutions that match the filter, and export and import of flags
// and notes.
import { get } from "./api.js";
import { byId, h, plural, setText } from "./dom.js";
import { copy, download, jsonLines } from "./files.js";
import { allNotes, importNotes, noteOf, notesOf, onNotes, removeNotes } from "./notes.js";
import { go, question, view } from "./state.js";

const MAX_FILE = 100_000; // solutions in a downloaded file
const MAX_COPIED = 1000; // solutions in a copy
const MAX_LISTED = 200; // notes in the list

let names = [];

/** Open the dialog. `runs` are the names of the runs. */
export function showExports(runs) {
  names = runs;
  setText(byId("export-result"), "");
  showNotes();
  byId("export-dialog").showModal();
}

export function listenToExports() {
  byId("save-found").addEventListener("click", () => attempt(async () => {
    const { rows, total } = await selection(MAX_FILE);
    download(`${runName()}-selection`, jsonLines(rows));
    return `${plural(rows.length, "solution")}${rest(rows, total)} written to a file.`;
  }));
  byId("copy-found").addEventListener("click", () => attempt(async () => {
    const { rows, total } = await selection(MAX_COPIED);
    await copy(jsonLines(rows));
    return `${plural(rows.length, "solution")}${rest(rows, total)} copied.`;
  }));
  byId("save-notes").addEventListener("click", () => attempt(() => {
    download("notes", jsonLines(allNotes()));
    return `${plural(allNotes().length, "note")} written to a file.`;
  }));
  byId("copy-notes").addEventListener("click", () => attempt(async () => {
    await copy(jsonLines(allNotes()));
    return `${plural(allNotes().length, "note")} copied.`;
  }));
  byId("drop-notes").addEventListener("click", () => attempt(() => {
    const mine = notesOf(view().run);
    if (!confirm(`Delete ${plural(mine.length, "flag or note", "flags and notes")} on this run?`)) return "";
    removeNotes(mine);
    return `${plural(mine.length, "note")} deleted.`;
  }));
  byId("import-notes").addEventListener("change", ({ target }) => attempt(async () => {
    const [file] = target.files;
    const text = file === undefined ? null : await file.text();
    target.value = "";
    return text === null ? "" : importNotes(text);
  }));
  onNotes(showNotes);
}

const runName = () => names[Number(view().run || 0)] ?? "run";
const rest = (rows, total) => (rows.length < total ? ` (the first of ${total.toLocaleString("en")})` : "");

async function attempt(task) {
  const buttons = byId("export-dialog").querySelectorAll("section button");
  for (const button of buttons) button.disabled = true;
  try {
    setText(byId("export-result"), await task());
  } catch (error) {
    setText(byId("export-result"), error.message);
  } finally {
    for (const button of buttons) button.disabled = false;
    showNotes();
  }
}

/** Fetch the first `most` solutions that match the filter, in parts, each with the user's note. */
async function selection(most) {
  const asked = question();
  const rows = [];
  let total = Infinity;
  while (rows.length < Math.min(total, most)) {
    const part = await get("export", { ...asked, offset: rows.length });
    total = part.total;
    if (!part.rows.length) break;
    rows.push(...part.rows);
    setText(byId("export-result"), `${rows.length.toLocaleString("en")} of ${total.toLocaleString("en")}`);
  }
  return { rows: rows.slice(0, most).map((row) => ({ run: runName(), ...row, ...noteFields(asked.run, row) })), total };
}

/** Return the user's flag and note on a solution; an empty object if the user has none. */
export function noteFields(run, row) {
  const note = noteOf(run, row.solution_id);
  return note === null ? {} : { flag: note.flag, note: note.note };
}

function showNotes() {
  const dialog = byId("export-dialog");
  const mine = notesOf(view().run);
  const all = allNotes().length;
  const others = all > mine.length ? ` (all runs: ${all.toLocaleString("en")})` : "";
  setText(byId("noted"), mine.length ? `You have flagged or noted ${plural(mine.length, "solution")} of this run${others}.`
    : `You have not flagged or noted a solution of this run yet${others}. Press f to flag the open solution, e to write a note.`);
  for (const id of ["save-notes", "copy-notes"]) byId(id).disabled = all === 0;
  byId("drop-notes").disabled = mine.length === 0;
  const shown = mine.sort((one, other) => (one.at < other.at ? 1 : -1)).slice(0, MAX_LISTED);
  byId("noted-list").replaceChildren(...shown.map((note) => {
    const open = () => {
      dialog.close();
      go({ id: note.solution_id, step: "", with: "" });
    };
    const where = `${note.problem_id}, sample ${note.sample_index ?? "?"}`;
    return h("li", {},
      h("button", { type: "button", class: "plain", click: open }, note.flag ? `⚑ ${where}` : where),
      note.note === "" ? null : h("span", { class: "quiet" }, ` ${note.note.slice(0, 120)}`));
  }));
}
