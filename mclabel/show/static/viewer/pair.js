// Comparison of two samples of a problem side by side, with their common first steps marked.
import { h } from "./dom.js";
import { go } from "./state.js";
import { stepList } from "./steps.js";
import { prose } from "./text.js";
import { OUTCOMES, chip, errorWords, labelled, opinionFacts, stepName } from "./values.js";

/** Draw both solutions under one heading. `row` is the solution that is open in the list. */
export function pair(row, other) {
  const shared = sharedSteps(row, other);
  const said = ["They differ from the first step on.", "Their first step is the same."][shared]
    ?? `Their first ${shared} steps are the same.`;
  const most = Math.max(row.steps.length, other.steps.length);
  const sides = h("div", { class: "sides" }, side(row, shared, row, other), side(other, shared, row, other));
  sides.style.setProperty("--rows", most + 1);
  return h("section", { class: "compared", "aria-label": "Two samples side by side" },
    h("h3", {}, "Side by side"), h("p", { class: "quiet" }, said), sides);
}

/** Make a select element with the problem's other samples; null if there are no other samples. */
export function chooser(row, chosen) {
  const samples = row.samples.filter((sample) => sample.solution_id !== row.solution_id);
  if (!samples.length) return null;
  const options = samples.map((sample) => h("option", { value: sample.solution_id }, name(sample)));
  const select = h("select", { id: "with", change: (event) => go({ with: event.target.value, step: "" }) },
    h("option", { value: "" }, chosen ? "nothing" : "another sample"), options);
  select.value = chosen;
  return h("label", { class: "with" }, h("span", {}, "Compare with "), select);
}

/** Return the id of the problem's sample after `chosen`, without `row` itself; "" after the last. */
export function nextSample(row, chosen) {
  const ids = row.samples.map((sample) => sample.solution_id).filter((id) => id !== row.solution_id);
  return ids[ids.indexOf(chosen) + 1] ?? "";
}

function name(sample) {
  return `sample ${sample.sample_index}: ${OUTCOMES[sample.outcome]}, ${errorWords(sample)}`;
}

function sharedSteps(row, other) {
  const same = (step, index) => {
    const there = other.steps[index];
    return there !== undefined && there.text.text === step.text.text && there.text.length === step.text.length;
  };
  const parted = row.steps.findIndex((step, index) => !same(step, index));
  return parted === -1 ? row.steps.length : parted;
}

function side(row, shared, left, right) {
  const marks = Object.fromEntries(row.steps.slice(0, shared).map((_, index) => [index, [chip("", "same in both")]]));
  const partner = row === left ? right : left;
  const facts = [
    ["Answer", [prose(row.prediction, "prediction", row.solution_id), chip(row.outcome, OUTCOMES[row.outcome])]],
    ["Labelled first error", [labelled(row)]],
  ];
  if (row.has_truth) facts.push(["True first error", [stepName(row.truth)]]);
  facts.push(...opinionFacts(row));
  const head = h("div", { class: "side-head" },
    h("div", { class: "title" }, h("h4", {}, `Sample ${row.sample_index}`),
      h("button", { type: "button", click: () => go({ id: row.solution_id, with: "", step: "" }) }, "Open alone"),
      row === left ? null : h("button", { type: "button", click: () => go({ id: row.solution_id, with: partner.solution_id }) }, "Swap")),
    h("dl", { class: "facts" }, facts.map(([term, parts]) => h("div", {}, h("dt", {}, term), h("dd", {}, parts)))));
  const list = stepList({ ...row, rollouts_kept: false }, row.solution_id, marks);
  return h("section", { class: "side", "data-id": row.solution_id, "aria-label": `Sample ${row.sample_index}` }, head, list,
    row.steps.length < row.num_steps ? h("p", { class: "quiet" }, `The first ${row.steps.length} of ${row.num_steps} steps are shown.`) : null);
}
