// The steps of a solution: text, value, interval, rollout counts, label and PRM scores.
import { get } from "./api.js";
import { byId, h, plural } from "./dom.js";
import { go, view } from "./state.js";
import { prose } from "./text.js";
import { bar, chip, decision, reasons, share, sourceText } from "./values.js";

/** Draw the steps with a heading, and an explanation of the sources of their labels. */
export function steps(row, id) {
  const list = stepList(row, id);
  const section = h("section", { "aria-label": "Steps" }, h("h3", {}, plural(row.num_steps, "step")), list,
    h("p", { class: "quiet sources" }, `Sources of the labels: ${row.sources.map((source) => `${source}: ${sourceText(source)}`).join(". ")}.`));
  if (row.steps.length < row.num_steps) list.after(rest(list, row, id));
  return section;
}

/** Fetch further steps of `row`, until it has `count` steps or all steps of the solution. */
export async function loadSteps(row, id, count) {
  while (row.steps.length < Math.min(count, row.num_steps)) {
    const { steps: more } = await get("steps", { run: view().run, id, offset: row.steps.length });
    if (!more.length) return;
    row.steps.push(...more);
  }
}

/** Make the box below an incomplete list. Scrolling to the box loads further steps. */
function rest(list, row, id) {
  const note = h("span", { class: "quiet" });
  const button = h("button", { type: "button", click: () => list.more(row.steps.length + 1) }, "Show more steps");
  const box = h("p", { class: "rest" }, note, " ", button);
  const count = () => {
    note.textContent = `The first ${list.children.length.toLocaleString("en")} steps are shown.`;
    box.hidden = list.children.length >= row.num_steps;
  };
  let last = Promise.resolve();
  list.more = (wanted) => {
    last = last.then(async () => {
      await loadSteps(row, id, wanted);
      const have = list.children.length;
      const items = row.steps.slice(have).map((step, i) => oneStep(row, step, have + i, id, null));
      list.append(...items);
      for (const item of items) putScores(item, list.scores ?? [], row.num_steps);
      count();
    });
    return last;
  };
  new IntersectionObserver(([entry], observer) => {
    if (!box.isConnected) observer.disconnect();
    else if (entry.isIntersecting && !box.hidden) list.more(row.steps.length + 1);
  }, { rootMargin: "400px" }).observe(box);
  count();
  return box;
}

/**
 * Draw the list of steps without a heading. `marks` contains additional chips by step index. With
 * `marks`, steps cannot be opened.
 */
export function stepList(row, id, marks = null) {
  const items = row.steps.map((step, index) => oneStep(row, step, index, id, marks && (marks[index] ?? [])));
  return h("ol", { class: row.is_code ? "steps code" : "steps", start: "0", "data-count": row.num_steps }, items);
}

function oneStep(row, step, index, id, marks) {
  const value = step.value ?? step.mean;
  const rollouts = step.num_right + step.num_wrong + step.num_truncated + step.num_ungraded;
  const word = decision(step.hard);
  const state = word.replace(" ", "-");
  const flags = [...(marks ?? [])];
  if (index === row.first_error) flags.push(chip("error", row.truth === index ? "labelled and true first error" : "labelled first error"));
  if (row.has_truth && index === row.truth && index !== row.first_error) flags.push(chip(row.decided ? "differs" : "", "true first error"));
  if (step.state === "recovered") flags.push(chip("", "repairs an error"));
  if (step.state === "carried") flags.push(chip("differs", "builds on an error"));
  if (step.state === "error" && index !== row.first_error) flags.push(chip("error", "another error"));
  if (step.committed !== null) flags.push(chip("", `commits to an answer: ${step.committed}`));
  const kind = step.value === null && step.mean !== null ? "expected value" : "value";
  const details = [
    rollouts ? counts(step, rollouts) : null,
    rollouts && row.completers.length > 1 ? byCompleter(row, step) : null,
    step.low === null ? null : `95% ${share(step.low)} to ${share(step.high)}`,
    step.chance === null ? null : `probability of first error ${share(step.chance)}`,
    kind === "value" ? null : kind,
    `source ${step.source}`,
  ].filter(Boolean).join(" · ");
  const tally = rollouts ? counts({ ...step, num_wrong: 0 }, rollouts) : TALLIES[step.source] ?? "no rollouts";
  const line = bar(value, step.low, step.high, tally);
  const toggle = () => go({ step: view().step === String(index) ? "" : String(index) });
  const opens = { type: "button", class: "open", "aria-expanded": "false", "aria-controls": `opened-${index}`, click: toggle };
  const node = h("li", {
    class: `step ${value === null ? "no-value" : ""} ${state}`, "data-step": index, tabindex: "-1", "aria-label": `Step ${index}, ${word}`,
  },
  h("div", { class: "step-body" },
    h("span", { class: "number", "aria-hidden": "true" }, String(index)),
    h("div", { class: "said" }, flags.length ? h("p", { class: "chips" }, flags) : null,
      prose(step.text, `step.${index}`, id, step.places, row.is_code)),
    h("div", { class: "measures", title: details },
      h("strong", { class: `word ${state}` }, word),
      h("span", { class: "value" }, value === null && step.hard !== null ? "" : share(value)),
      marks === null ? h("button", opens, line) : line)),
  reasons(step.places) ?? "",
  h("p", { class: "scores quiet", hidden: true }));
  if (value !== null) node.style.setProperty("--v", value);
  if (marks === null) {
    const kept = rollouts && row.rollouts_kept;
    node.append(h("div", { class: "opened", id: `opened-${index}`, hidden: true, role: "region", "aria-label": `More of step ${index}` },
      h("p", { class: "quiet" }, details), kept ? h("div", { class: "rollouts" }) : null));
  }
  return node;
}

const TALLIES = { given: "imported label", outcome: "outcome", judge: "judge", none: "no label" };

function byCompleter(row, step) {
  return row.completers.map((name, i) => {
    const own = step.by_completer[i];
    return `${name} ${own.num_right}/${own.num_right + own.num_wrong + own.num_truncated + own.num_ungraded}`;
  }).join(", ");
}

function counts(step, rollouts) {
  const rest = [
    [step.num_wrong, "wrong"], [step.num_truncated, "truncated"], [step.num_ungraded, "ungraded"],
  ].filter(([count]) => count).map(([count, name]) => `${count} ${name}`);
  return [`${step.num_right} of ${rollouts} right`, ...rest].join(", ");
}

/** Load the PRM scores, and show them beside the steps in `root` if the solution is still shown. */
export async function addScores(root, run, id, isShown) {
  const scores = await get("scores", { run, id });
  if (!isShown()) return;
  const entries = Object.entries(scores);
  const kept = root.querySelector(".step .open[aria-expanded=true]")?.closest(".step");
  const before = kept?.getBoundingClientRect().top;
  const list = root.querySelector(".steps");
  list.scores = entries;
  for (const node of list.children) putScores(node, entries, Number(list.dataset.count));
  if (kept) {  // keep the scroll position of the open step
    const moved = kept.getBoundingClientRect().top - before;
    for (const pane of [byId("solution"), window]) pane.scrollBy(0, moved);
  }
  const reasons = entries.filter(([, { reason }]) => reason).map(([name, { reason }]) => `${name}: ${reason}`);
  if (reasons.length) list.after(h("p", { class: "quiet" }, `No scores: ${reasons.join("; ")}`));
}

/** Show the PRM scores of a step. Scores of whole solutions are shown beside the last step. */
function putScores(node, entries, count) {
  const line = node.querySelector(".scores");
  const index = Number(node.dataset.step);
  const last = index === count - 1;
  const shown = entries.filter(([, { kind, scores: all }]) => all?.[index] !== undefined && (kind === "prm" || last));
  line.hidden = shown.length === 0;
  line.replaceChildren(
    ...shown.map(([name, { scores: all }]) =>
      h("span", { class: "score" }, h("span", { class: "name", title: name }, name), bar(all[index], null, null),
        h("b", {}, share(all[index])))));
}
