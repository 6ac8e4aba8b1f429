// The list of the solutions that match the filters, page by page.
import { get } from "./api.js";
import { byId, h, plural, setText } from "./dom.js";
import { noteOf, onNotes } from "./notes.js";
import { address, go, question, view } from "./state.js";
import { OUTCOMES, chip, errorWords, isTests, strip } from "./values.js";

const PAGE = 50;
let offset = 0;
let newest = 0;

/** Load the page that contains the solution with the 0-based position `at` in the result. */
export async function showList(at = offset) {
  offset = Math.floor(at / PAGE) * PAGE;
  const turn = ++newest;
  byId("list").setAttribute("aria-busy", "true");
  const page = await get("solutions", { ...question(), offset, limit: PAGE });
  if (turn !== newest) return;
  const list = byId("list");
  list.start = offset + 1;
  const kept = document.activeElement?.closest("#list a")?.dataset.id;
  list.replaceChildren(...page.rows.map((row, i) => item(row, page.rows[i - 1])));
  list.setAttribute("aria-busy", "false");
  if (kept) list.querySelector(`a[data-id="${CSS.escape(kept)}"]`)?.focus();
  showMine();
  if (!page.rows.length) list.append(h("li", { class: "empty" }, byId("clear").hidden
    ? "No labels yet. The first labels are shown here when the job has written them."
    : "No solution matches. Choose other filters or search for other words, or press Clear filters."));
  setText(byId("found"), `${plural(page.total, "solution")} found`);
  byId("earlier").disabled = offset === 0;
  byId("later").disabled = offset + PAGE >= page.total;
  const last = Math.min(offset + PAGE, page.total);
  setText(byId("page"), page.total ? `${(offset + 1).toLocaleString("en")} to ${last.toLocaleString("en")}` : "");
  mark();
}

/** Mark the open solution in the list. */
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

/** Show the user's flags and notes in the list. */
function showMine() {
  for (const link of document.querySelectorAll("#list a")) {
    const note = noteOf(view().run, link.dataset.id);
    const words = note === null ? "" : [note.flag ? "⚑ flagged" : "", note.note === "" ? "" : "note"].filter(Boolean).join(", ");
    link.querySelector(".mine").replaceChildren(...(words === "" ? [] : [chip("kept", words)]));
  }
}

export const firstListed = () => document.querySelector("#list a")?.dataset.id;

export const isListed = (at) => at >= offset && at < offset + PAGE;

/** Make the list item of a solution. The problem is omitted if the row `above` has the same one. */
function item(row, above) {
  const chips = [chip(row.outcome, OUTCOMES[row.outcome])];
  chips.push(chip(row.first_error === null ? "" : "error", errorWords(row)));
  if (row.decided && row.has_truth && row.truth !== row.first_error) {
    chips.push(chip("differs", `truth: ${row.truth === null ? "none" : `at ${row.truth}`}`));
  }
  if (row.lucky) chips.push(chip("lucky", "lucky"));
  if (row.kept === false) chips.push(chip("differs", "not kept"));
  if (row.num_truncated) chips.push(chip("", plural(row.num_truncated, "truncated rollout")));
  if (row.num_ungraded) chips.push(chip("", plural(row.num_ungraded, "ungraded rollout")));
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go({ id: row.solution_id, step: "", with: "" });
  };
  const isFirst = row.problem_id !== above?.problem_id || row.problem !== above.problem;
  const gold = isTests(row.answer) ? "tests of programs" : row.answer;
  return h("li", { class: isFirst ? "first" : "" },
    isFirst ? h("p", { class: "problem" }, row.problem) : null,
    isFirst && gold ? h("p", { class: "gold quiet" }, `gold ${gold}`) : null,
    h("a", { href: address({ id: row.solution_id, step: "", with: "", sum: "" }), "data-id": row.solution_id, click: open },
      h("span", { class: "chips" }, h("span", { class: "mine" }), chips,
        h("span", { class: "answers quiet" }, `${row.given_id ?? `sample ${row.sample_index}`}${row.prediction === null ? "" : `: ${row.prediction}`}`),
        strip(row))));
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
