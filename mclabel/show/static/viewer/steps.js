// The steps of a solution: text, value, interval, counts and decision, and what PRMs score.
import { get } from "./api.js";
import { byId, h, plural } from "./dom.js";
import { go, view } from "./state.js";
import { prose } from "./text.js";
import { bar, chip, decision, reasons, share, sourceText } from "./values.js";

/** The list with a heading, and what the sources of its labels mean. */
export function steps(row, id) {
  const list = stepList(row, id);
  const section = h("section", { "aria-label": "Steps" }, h("h3", {}, plural(row.num_steps, "step")), list,
    h("p", { class: "quiet sources" }, `Sources of the labels: ${row.sources.map((source) => `${source}: ${sourceText(source)}`).join(". ")}.`));
  if (row.steps.length < row.num_steps) list.after(rest(list, row, id));
  return section;
}

/** Fetch steps that follow those of `row`, until it has `count`, or all. */
export async function loadSteps(row, id, count) {
  while (row.steps.length < Math.min(count, row.num_steps)) {
    const { steps: more } = await get("steps", { run: view().run, id, offset: row.steps.length });
    if (!more.length) return;
    row.steps.push(...more);
  }
}

/** What stands under a list that is not whole: it goes on when this comes into sight. */
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
      const items = row.steps.slice(have).map((step, i) => oneStep(row, step, have + i, id, []));
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

/** The list alone. `marks` names, by index, what is to be said of a step besides. */
export function stepList(row, id, marks = {}) {
  const items = row.steps.map((step, index) => oneStep(row, step, index, id, marks[index] ?? []));
  return h("ol", { class: row.is_code ? "steps code" : "steps", start: "0", "data-count": row.num_steps }, items);
}

function oneStep(row, step, index, id, marks) {
  const value = step.value ?? step.mean;
  const rollouts = step.num_right + step.num_wrong + step.num_truncated + step.num_ungraded;
  const word = decision(step.hard);
  const node = h("li", {
    class: `step ${value === null ? "no-value" : ""} ${word.replace(" ", "-")}`,
    "data-step": index, tabindex: "-1", "aria-label": `Step ${index}, ${word}`,
  });
  if (value !== null) node.style.setProperty("--v", value);
  const flags = [...marks];
  if (index === row.first_error) flags.push(chip("error", row.truth === index ? "first error, also in truth" : "first error by label"));
  if (row.has_truth && index === row.truth && index !== row.first_error) flags.push(chip(row.decided ? "differs" : "", "first error in truth"));
  if (step.state === "recovered") flags.push(chip("", "repairs an error"));
  if (step.state === "carried") flags.push(chip("differs", "rests on an error"));
  if (step.state === "error" && index !== row.first_error) flags.push(chip("error", "another error"));
  if (step.committed !== null) flags.push(chip("", `commits to an answer: ${step.committed}`));
  const kind = step.value === null && step.mean !== null ? "expected value" : "value";
  const facts = h("div", { class: "measures" },
    h("div", { class: "line" },
      h("strong", { class: `word ${word.replace(" ", "-")}` }, word), bar(value, step.low, step.high),
      h("span", { class: "value", title: kind }, share(value))),
    h("p", { class: "quiet" },
      [
        rollouts ? counts(step, rollouts) : null,
        rollouts && row.completers.length > 1 ? byCompleter(row, step) : null,
        step.low === null ? null : `95% ${share(step.low)} to ${share(step.high)}`,
        step.chance === null ? null : `chance of first error ${share(step.chance)}`,
        kind === "value" ? null : kind,
        `source ${step.source}`,
      ].filter(Boolean).join(" · ")),
    h("p", { class: "scores quiet", hidden: true }));
  if (rollouts && row.rollouts_kept) {
    const toggle = () => go({ step: view().step === String(index) ? "" : String(index) });
    facts.append(h("button", { type: "button", class: "open", "aria-expanded": "false", "aria-controls": `rollouts-${index}`, click: toggle },
      plural(rollouts, "rollout")));
  }
  node.append(
    h("div", { class: "step-body" },
      h("div", { class: "said" },
        h("span", { class: "number", "aria-hidden": "true" }, String(index)),
        h("div", {}, flags.length ? h("p", { class: "chips" }, flags) : null, prose(step.text, `step.${index}`, id, step.places),
          reasons(step.places))),
      facts));
  if (rollouts && row.rollouts_kept) {
    node.append(h("div", { class: "rollouts", id: `rollouts-${index}`, hidden: true, role: "region", "aria-label": `Rollouts of step ${index}` }));
  }
  return node;
}

function byCompleter(row, step) {
  return row.completers.map((name, i) => {
    const own = step.by_completer[i];
    return `${name} ${own.num_right}/${own.num_right + own.num_wrong + own.num_truncated + own.num_ungraded}`;
  }).join(", ");
}

function counts(step, rollouts) {
  const rest = [
    [step.num_wrong, "wrong"], [step.num_truncated, "cut"], [step.num_ungraded, "unknown"],
  ].filter(([count]) => count).map(([count, name]) => `${count} ${name}`);
  return [`${step.num_right} of ${rollouts} right`, ...rest].join(", ");
}

/** Put the scores of PRMs beside the steps in `root`, unless something else is shown by then. */
export async function addScores(root, run, id, isShown) {
  const scores = await get("scores", { run, id });
  if (!isShown()) return;
  const entries = Object.entries(scores);
  const kept = root.querySelector(".step .open[aria-expanded=true]")?.closest(".step");
  const before = kept?.getBoundingClientRect().top;
  const list = root.querySelector(".steps");
  list.scores = entries;
  for (const node of list.children) putScores(node, entries, Number(list.dataset.count));
  if (kept) {  // what is being read stays where it is
    const moved = kept.getBoundingClientRect().top - before;
    for (const pane of [byId("solution"), window]) pane.scrollBy(0, moved);
  }
  const reasons = entries.filter(([, { reason }]) => reason).map(([name, { reason }]) => `${name}: ${reason}`);
  if (reasons.length) list.after(h("p", { class: "quiet" }, `No scores: ${reasons.join("; ")}`));
}

/** Show what PRMs score beside one step; what scores whole solutions stands beside the last. */
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
