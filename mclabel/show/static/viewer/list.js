// The solutions that are asked for, page by page.
import { get } from "./api.js";
import { byId, h, plural, say } from "./dom.js";
import { noteOf, onNotes } from "./notes.js";
import { address, go, question, view } from "./state.js";
import { OUTCOMES, chip, errorWords, strip } from "./values.js";

const PAGE = 50;
let offset = 0;
let newest = 0;

/** Load the page that holds `at`, the place of a solution among those found. */
export async function showList(at = offset) {
  offset = Math.floor(at / PAGE) * PAGE;
  const turn = ++newest;
  byId("list").setAttribute("aria-busy", "true");
  const page = await get("solutions", { ...question(), offset, limit: PAGE });
  if (turn !== newest) return;
  const list = byId("list");
  list.start = offset + 1;
  const kept = document.activeElement?.closest("#list a")?.dataset.id;
  list.replaceChildren(...page.rows.map(item));
  list.setAttribute("aria-busy", "false");
  if (kept) list.querySelector(`a[data-id="${CSS.escape(kept)}"]`)?.focus();
  showMine();
  if (!page.rows.length) list.append(h("li", { class: "empty" }, "No solution matches."));
  say(byId("found"), `${plural(page.total, "solution")} found`);
  byId("earlier").disabled = offset === 0;
  byId("later").disabled = offset + PAGE >= page.total;
  const last = Math.min(offset + PAGE, page.total);
  say(byId("page"), page.total ? `${(offset + 1).toLocaleString("en")} to ${last.toLocaleString("en")}` : "");
  mark();
}

/** Show which one is open. */
export function mark() {
  const { id } = view();
  for (const link of document.querySelectorAll("#list a")) {
    const open = link.dataset.id === id;
    if (open) {
      link.setAttribute("aria-current", "true");
      link.scrollIntoView({ block: "nearest" });
    } else link.removeAttribute("aria-current");
  }
}

/** Say which solutions have a flag or a note of one's own. */
function showMine() {
  for (const link of document.querySelectorAll("#list a")) {
    const note = noteOf(view().run, link.dataset.id);
    const words = note === null ? "" : [note.flag ? "⚑ flagged" : "", note.note === "" ? "" : "note"].filter(Boolean).join(", ");
    link.querySelector(".mine").replaceChildren(...(words === "" ? [] : [chip("kept", words)]));
  }
}

export const firstListed = () => document.querySelector("#list a")?.dataset.id;

export const isListed = (at) => at >= offset && at < offset + PAGE;

function item(row) {
  const chips = [chip(row.outcome, OUTCOMES[row.outcome])];
  chips.push(chip(row.first_error === null ? "" : "error", errorWords(row)));
  if (row.decided && row.has_truth && row.truth !== row.first_error) {
    chips.push(chip("differs", `truth: ${row.truth === null ? "none" : `at ${row.truth}`}`));
  }
  if (row.lucky) chips.push(chip("lucky", "lucky"));
  if (row.kept === false) chips.push(chip("differs", "not kept"));
  if (row.num_truncated) chips.push(chip("", plural(row.num_truncated, "cut rollout")));
  if (row.num_ungraded) chips.push(chip("", plural(row.num_ungraded, "unknown verdict")));
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go({ id: row.solution_id, step: "", with: "" });
  };
  return h(
    "li", {},
    h("a", { href: address({ id: row.solution_id, step: "", with: "", sum: "" }), "data-id": row.solution_id, click: open },
      h("span", { class: "chips" }, h("span", { class: "mine" }), chips, strip(row)),
      h("span", { class: "problem" }, row.problem),
      h("span", { class: "answers quiet" },
        `answers ${row.prediction ?? "nothing"}, gold ${row.answer} · sample ${row.sample_index}`)),
  );
}

export function listenToPager() {
  onNotes(showMine);
  byId("earlier").addEventListener("click", () => turnTo(offset - PAGE));
  byId("later").addEventListener("click", () => turnTo(offset + PAGE));
}

async function turnTo(at) {
  await showList(at);
  byId("list").querySelector("a")?.scrollIntoView({ block: "nearest" });
}
