// One solution: its problem, its steps with their labels, the user's note and further facts.
import { get } from "./api.js";
import { byId, h, setText } from "./dom.js";
import { noteFields } from "./exports.js";
import { copy, jsonLines } from "./files.js";
import { MARKS } from "./filters.js";
import { MAX_NOTE, noteOf, setNote } from "./notes.js";
import { chooser, nextSample, pair } from "./pair.js";
import { showRollouts } from "./rollouts.js";
import { address, go, question, view } from "./state.js";
import { addScores, loadSteps, steps } from "./steps.js";
import { showSummary } from "./summary.js";
import { prose, visible } from "./text.js";
import { OUTCOMES, chip, labelled, opinionFacts, share, stepName, strip, testWords } from "./values.js";

const MAX_COMPARED = 400; // steps per solution in a comparison of two samples

let newest = 0;
let place = null;
let shown = null;

/** Draw the solution that the view selects, or the start page if none is selected. */
export async function showSolution({ runs, prms, counts }) {
  const turn = ++newest;
  const { id, run, with: second, sum } = view();
  const main = byId("solution");
  document.body.classList.toggle("reading", id !== "" || sum !== "");
  if (id === "") {
    place = null;
    shown = null;
    document.title = "mclabel";
    await showStart(main, counts);
    return null;
  }
  main.setAttribute("aria-busy", "true");
  const [row, found, other] = await Promise.all([
    get("solution", { run, id }), get("place", { ...question(), id }),
    second === "" ? null : get("solution", { run, id: second }),
  ]);
  if (other !== null) await Promise.all([loadSteps(row, id, MAX_COMPARED), loadSteps(other, second, MAX_COMPARED)]);
  if (turn !== newest) return null;
  place = found;
  shown = row;
  document.title = `${solutionName(row)} · mclabel`;
  const parts = other === null
    ? [head(row, runs), problem(row), steps(row, id), others(row, runs), about(row)]
    : [head(row, runs, { compared: true }), problem(row), pair(row, other)];
  main.replaceChildren(...parts.filter(Boolean));
  main.setAttribute("aria-busy", "false");
  main.scrollTop = 0;
  showStep(view(), {});
  if (prms.length) {
    const sides = other === null ? [main] : main.querySelectorAll(".side");
    for (const side of sides) addScores(side, run, side.dataset.id ?? id, () => turn === newest);
  }
  return found;
}

/** Return the displayed name of a solution: for an imported solution, its id in the imported file. */
const solutionName = (row) => visible(row.given_id ?? `${row.problem_id.text}, sample ${row.sample_index}`);

/** Draw the start page: charts of the solutions that match the filter, and suggested filters. */
async function showStart(main, { marks }) {
  let charts = byId("summary");
  if (charts === null) {
    charts = h("section", { id: "summary", "aria-label": "Summary of the solutions found" });
    main.replaceChildren(h("section", { class: "start", "aria-label": "Start" },
      h("div", { class: "title" }, h("h2", {}, "Solutions found"),
        h("button", { type: "button", class: "close", click: () => go({ sum: "" }) }, "Back to the list")),
      charts, h("div", { id: "worth" })));
  }
  const found = Object.entries(marks).filter(([, count]) => count);
  const items = found.map(([mark, count]) =>
    h("li", {}, h("button", { type: "button", click: () => go({ mark }) },
      h("b", {}, count.toLocaleString("en")), ` ${MARKS[mark]}`)));
  const worth = byId("worth");
  if (!worth.contains(document.activeElement)) {
    worth.replaceChildren(...[
      items.length ? h("h2", {}, "Worth a look") : null,
      h("ul", {}, items),
      h("p", { class: "quiet" }, "Or choose a solution from the list. ", h("kbd", {}, "j"), " opens the first solution, ",
        h("kbd", {}, "?"), " lists all keys."),
    ].filter(Boolean));
  }
  await showSummary(charts);
}

/** Flag the open solution, or remove its flag. */
export function toggleFlag() {
  if (shown === null) return;
  const { run } = view();
  setNote(run, shown, { flag: !(noteOf(run, shown.solution_id)?.flag ?? false) });
}

/** Compare the open solution with the problem's next sample. After the last sample, stop comparing. */
export function compareNext() {
  if (shown !== null) go({ with: nextSample(shown, view().with), step: "" });
}

export const previousAndNext = () => place;

/** Open the rollouts of the step that the view selects, and close those of all other steps. */
export function showStep(now) {
  const list = document.querySelector(".steps");
  if (now.step !== "" && list?.more && Number(now.step) >= list.children.length && list.children.length < shown.num_steps) {
    list.more(Number(now.step) + 1).then(() => showStep(view()));
    return;
  }
  for (const node of document.querySelectorAll(".step")) {
    const open = now.step === node.dataset.step;
    const button = node.querySelector(".open");
    if (button === null || (button.getAttribute("aria-expanded") === "true") === open) continue;
    button.setAttribute("aria-expanded", String(open));
    const panel = node.querySelector(".opened");
    const rollouts = panel.querySelector(".rollouts");
    panel.hidden = !open;
    if (open && rollouts !== null) showRollouts(rollouts, now.run, now.id, node.dataset.step).then(() => node.scrollIntoView({ block: "nearest" }));
  }
}

/** Go to the labelled first error. If no step is labelled wrong, go to the true first error. */
export async function toFirstError() {
  const at = shown?.first_error ?? shown?.truth ?? null;
  if (at === null) return;
  await document.querySelector(".steps").more?.(at + 1);
  const node = document.querySelector(`.step[data-step="${at}"]`);
  (node?.querySelector(".open") ?? node)?.focus();
  node?.scrollIntoView({ block: "center" });
}

/** Move the focus by `by` steps from the step that has it; without one, to the first step. */
export function moveStep(by) {
  const all = [...document.querySelectorAll(".step")];
  const at = all.findIndex((node) => node.contains(document.activeElement));
  const next = all[Math.max(0, Math.min(all.length - 1, at === -1 ? 0 : at + by))];
  const target = next?.querySelector(".open") ?? next;
  target?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** Show the current flag and note of the open solution. */
export function showOwn() {
  const note = shown === null ? null : noteOf(view().run, shown.solution_id);
  const text = byId("note");
  if (shown === null || text === null) return;
  byId("flag").setAttribute("aria-pressed", String(note?.flag ?? false));
  if (document.activeElement !== text) text.value = note?.note ?? "";
  const stale = note !== null && note.digest !== "" && note.digest !== shown.digest;
  setText(byId("stale"), stale ? "This note was written for a different solution text with the same id." : "");
}

function ownNote(row) {
  const { run } = view();
  const saved = h("span", { class: "quiet", role: "status", id: "saved" });
  const write = ({ target }) => {
    setNote(run, row, { note: target.value.slice(0, MAX_NOTE) });
    setText(saved, "stored in this browser");
  };
  const note = noteOf(run, row.solution_id);
  const text = h("textarea", { id: "note", rows: "1", maxlength: String(MAX_NOTE), placeholder: "stored in this browser", change: write });
  text.value = note?.note ?? "";
  return h("div", { class: "own" },
    h("button", { type: "button", id: "flag", "aria-pressed": String(note?.flag ?? false), click: toggleFlag }, "Flag"),
    h("label", {}, h("span", {}, "Note"), text), saved, h("p", { id: "stale", class: "stale" }));
}

async function copySolution(row, runs, button) {
  await loadSteps(row, row.solution_id, row.num_steps);
  const { run } = view();
  const line = {
    run: runs[Number(run || 0)], problem_id: row.problem_id.text, solution_id: row.solution_id, sample_index: row.sample_index,
    problem: row.problem.text, answer: row.answer.text, prediction: row.prediction?.text ?? null, outcome: row.outcome,
    first_error: row.first_error, decided: row.decided, ...(row.has_truth ? { true_first_error: row.truth } : {}),
    ...(row.consensus === null ? {} : { consensus: row.consensus }),
    steps: row.steps.map(({ text, ...label }) => ({ text: text.text, ...label })), ...noteFields(run, row),
  };
  const texts = [row.problem, row.answer, ...row.steps.map((step) => step.text)];
  if (row.steps.length < row.num_steps || texts.some(({ text, length }) => [...text].length < length)) line.is_cut = true;
  await copy(jsonLines([line]));
  setText(button, "Copied");
  setTimeout(() => setText(button, "Copy"), 2000);
}

function head(row, runs, { compared = false } = {}) {
  const facts = [
    ["Answer", [prose(row.prediction, "prediction", row.solution_id), chip(row.outcome, OUTCOMES[row.outcome])]],
    ...(row.answer.text ? [["Gold", [gold(row)]]] : []),
    ["Labelled first error", [row.first_error === null ? labelled(row)
      : h("button", { type: "button", class: "plain", title: "Key: g", click: toFirstError }, `Go to ${labelled(row)}`)]],
  ];
  if (row.has_truth) {
    const same = row.truth === row.first_error;
    const verdict = row.decided ? [" ", chip(same ? "" : "differs", same ? "agrees" : "differs")] : [];
    facts.push(["True first error", [stepName(row.truth), ...verdict]]);
  }
  if (row.no_error !== null) facts.push(["Probability of no error", [share(row.no_error)]]);
  if (row.root_value !== null) facts.push(["Value before the first step", [share(row.root_value)]]);
  facts.push(...opinionFacts(row));
  const told = compared ? facts.filter(([name]) => name === "Gold") : facts; // in a comparison, `pair` shows the other facts of each sample
  const lucky = row.has_truth && row.outcome === "right" && row.truth !== null;
  return h("header", { class: "solution-head" },
    h("div", { class: "title" },
      h("h2", {}, solutionName(row)),
      lucky ? chip("lucky", "lucky: right answer through a wrong step") : null,
      h("div", { class: "moves" },
        chooser(row, view().with),
        h("button", { type: "button", click: ({ target }) => copySolution(row, runs, target) }, "Copy"),
        move("Previous", place.previous), move("Next", place.next),
        h("button", { type: "button", class: "close", click: () => go({ id: "", step: "", with: "" }) }, "Back to the list"))),
    h("p", { class: "quiet where" },
      place.offset === null
        ? "does not match the filter"
        : `${(place.offset + 1).toLocaleString("en")} of ${place.total.toLocaleString("en")} found`),
    h("dl", { class: "facts" }, told.map(([name, parts]) => h("div", {}, h("dt", {}, name), h("dd", {}, parts)))),
    ownNote(row));
}

function gold({ answer, solution_id, is_code }) {
  const text = prose(answer, "answer", solution_id);
  return is_code ? h("details", { class: "code" }, h("summary", {}, testWords(answer.text)), text) : text;
}

function move(text, id) {
  return h("button", { type: "button", disabled: id === null, click: () => go({ id, step: "", with: "" }) }, text);
}

function problem(row) {
  return h("section", { class: "problem-text", "aria-label": "Problem" },
    h("h3", {}, "Problem"), prose(row.problem, "problem", row.solution_id));
}

function others(row, runs) {
  if (!row.others.length) return null;
  const rows = row.others.map((other) =>
    h("tr", {},
      h("th", { scope: "row" }, h("a", { href: address({ run: other.run, id: other.solution_id, step: "", with: "" }) }, runs[other.run])),
      h("td", {}, labelled(other),
        row.decided && other.decided && other.first_error !== row.first_error ? " (differs)" : ""),
      h("td", {}, strip(other))));
  return h("section", { "aria-label": "Other runs" },
    h("h3", {}, "The same solution in other runs"),
    h("table", {},
      h("thead", {}, h("tr", {}, ["run", "first error", "values"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows)));
}

function about(row) {
  const of = (counts) => `${counts.num_right} right, ${counts.num_wrong} wrong, ${counts.num_truncated} truncated, ${counts.num_ungraded} ungraded`;
  const facts = [
    ["solution", row.solution_id], ["origin", row.origin],
    ...Object.entries(row.meta).map(([name, value]) => [name.replace("_", " "), value]),
    ["all solutions of this problem", of(row.siblings)], ["rollouts before the first step", of(row.root)],
  ];
  if (row.completers.length) facts.push(["completers of the rollouts", row.completers.join(", ")], ["completer of the values", row.values_of]);
  if (row.priors) facts.push(["priors", row.priors]);
  return h("details", { class: "about" }, h("summary", {}, "More about this solution"),
    h("dl", { class: "facts" }, facts.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)))));
}
