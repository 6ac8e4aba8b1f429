// One solution: its problem, and every step with what is known of it.
import { get } from "./api.js";
import { byId, h, plural } from "./dom.js";
import { MARKS } from "./filters.js";
import { showRollouts } from "./rollouts.js";
import { address, go, question, view } from "./state.js";
import { prose } from "./text.js";
import { OUTCOMES, bar, chip, decision, ruleText, share, strip } from "./values.js";

let newest = 0;
let place = null;

/** Draw the solution of the view, or what to do without one. */
export async function showSolution({ runs, prms, counts }) {
  const turn = ++newest;
  const { id, run } = view();
  const main = byId("solution");
  document.body.classList.toggle("reading", id !== "");
  if (id === "") {
    place = null;
    document.title = "mclabel";
    main.replaceChildren(start(counts));
    return null;
  }
  main.setAttribute("aria-busy", "true");
  const [row, found] = await Promise.all([
    get("solution", { run, id }), get("place", { ...question(), id }),
  ]);
  if (turn !== newest) return null;
  place = found;
  document.title = `${row.problem_id.text} · mclabel`;
  main.replaceChildren(...[head(row), problem(row), steps(row, id), others(row, runs), about(row)].filter(Boolean));
  main.setAttribute("aria-busy", "false");
  main.scrollTop = 0;
  showStep(view(), {});
  if (prms.length) addScores(run, id, turn);
  return found;
}

/** What is worth a look, where nothing is looked at yet. */
function start({ marks }) {
  const found = Object.entries(marks).filter(([, count]) => count);
  const items = found.map(([mark, count]) =>
    h("li", {}, h("button", { type: "button", click: () => go({ mark }) },
      h("b", {}, count.toLocaleString("en")), ` ${MARKS[mark]}`)));
  return h("section", { class: "start", "aria-label": "Start" },
    h("h2", {}, items.length ? "Worth a look" : "Solutions"),
    h("ul", {}, items),
    h("p", { class: "quiet" }, "Or choose a solution from the list. ", h("kbd", {}, "j"), " opens the first, ",
      h("kbd", {}, "?"), " shows all keys."));
}

export const previousAndNext = () => place;

/** Open and close the rollouts of steps, as the view says. */
export function showStep(now) {
  for (const node of document.querySelectorAll(".step")) {
    const open = now.step === node.dataset.step;
    const button = node.querySelector(".open");
    if (button === null || (button.getAttribute("aria-expanded") === "true") === open) continue;
    button.setAttribute("aria-expanded", String(open));
    const panel = node.querySelector(".rollouts");
    panel.hidden = !open;
    if (open) showRollouts(panel, now.run, now.id, node.dataset.step).then(() => node.scrollIntoView({ block: "nearest" }));
  }
}

/** Put the focus on the step after or before the one that has it. */
export function moveStep(by) {
  const all = [...document.querySelectorAll(".step")];
  const at = all.findIndex((node) => node.contains(document.activeElement));
  const next = all[Math.max(0, Math.min(all.length - 1, at === -1 ? 0 : at + by))];
  const target = next?.querySelector(".open") ?? next;
  target?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function head(row) {
  const error = (index) => (index === null ? "none" : `step ${index}`);
  const facts = [
    ["Answer", [prose(row.prediction, "prediction", row.solution_id), chip(row.outcome, OUTCOMES[row.outcome])]],
    ["Gold", [prose(row.answer, "answer", row.solution_id)]],
    ["First error, labelled", [error(row.first_error)]],
  ];
  if (row.has_truth) {
    const same = row.truth === row.first_error;
    facts.push(["First error, in truth", [error(row.truth), " ", chip(same ? "" : "differs", same ? "agrees" : "differs")]]);
  }
  if (row.no_error !== null) facts.push(["Chance of no error", [share(row.no_error)]]);
  if (row.root_value !== null) facts.push(["Bare problem's value", [share(row.root_value)]]);
  const lucky = row.has_truth && row.outcome === "right" && row.truth !== null;
  return h("header", { class: "solution-head" },
    h("div", { class: "title" },
      h("h2", {}, `${row.problem_id.text}, sample ${row.sample_index}`),
      lucky ? chip("lucky", "lucky: right by a wrong step") : null,
      h("div", { class: "moves" },
        move("Previous", place.previous), move("Next", place.next),
        h("button", { type: "button", class: "close", click: () => go({ id: "", step: "" }) }, "Back to the list"))),
    h("p", { class: "quiet where" },
      place.offset === null
        ? "not among the solutions found"
        : `${(place.offset + 1).toLocaleString("en")} of ${place.total.toLocaleString("en")} found`),
    h("dl", { class: "facts" }, facts.map(([name, parts]) => h("div", {}, h("dt", {}, name), h("dd", {}, parts)))));
}

function move(text, id) {
  return h("button", { type: "button", disabled: id === null, click: () => go({ id, step: "" }) }, text);
}

function problem(row) {
  return h("section", { class: "problem-text", "aria-label": "Problem" },
    h("h3", {}, "Problem"), prose(row.problem, "problem", row.solution_id));
}

function steps(row, id) {
  const list = h("ol", { class: "steps", start: "0" }, row.steps.map((step, index) => oneStep(row, step, index, id)));
  const rules = [...new Set(row.steps.map((step) => step.rule))];
  const section = h("section", { "aria-label": "Steps" }, h("h3", {}, plural(row.num_steps, "step")), list,
    h("p", { class: "quiet rules" }, `Rules: ${rules.map((rule) => `${rule}: ${ruleText(rule)}`).join(". ")}.`));
  if (row.steps.length < row.num_steps) {
    section.append(h("p", { class: "quiet" }, `The first ${row.steps.length} are shown.`));
  }
  return section;
}

function oneStep(row, step, index, id) {
  const value = step.value ?? step.mean;
  const rollouts = step.num_right + step.num_wrong + step.num_truncated + step.num_ungraded;
  const word = decision(step.hard);
  const node = h("li", {
    class: `step ${value === null ? "no-value" : ""} ${word.replace(" ", "-")}`,
    "data-step": index, tabindex: "-1", "aria-label": `Step ${index}, ${word}`,
  });
  if (value !== null) node.style.setProperty("--v", value);
  const flags = [];
  if (index === row.first_error) flags.push(chip("error", row.truth === index ? "first error, also in truth" : "first error by label"));
  if (row.has_truth && index === row.truth && index !== row.first_error) flags.push(chip("differs", "first error in truth"));
  const kind = step.value === null && step.mean !== null ? "expected value" : "value";
  const facts = h("div", { class: "measures" },
    h("div", { class: "line" },
      h("strong", { class: `word ${word.replace(" ", "-")}` }, word), bar(value, step.low, step.high),
      h("span", { class: "value", title: kind }, share(value))),
    h("p", { class: "quiet" },
      [
        rollouts ? counts(step, rollouts) : null,
        step.low === null ? null : `95% ${share(step.low)} to ${share(step.high)}`,
        step.chance === null ? null : `chance of first error ${share(step.chance)}`,
        kind === "value" ? null : kind,
        `rule ${step.rule}`,
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
        h("div", {}, flags.length ? h("p", { class: "chips" }, flags) : null, prose(step.text, `step.${index}`, id))),
      facts));
  if (rollouts && row.rollouts_kept) {
    node.append(h("div", { class: "rollouts", id: `rollouts-${index}`, hidden: true, role: "region", "aria-label": `Rollouts of step ${index}` }));
  }
  return node;
}

function counts(step, rollouts) {
  const rest = [
    [step.num_wrong, "wrong"], [step.num_truncated, "cut"], [step.num_ungraded, "unknown"],
  ].filter(([count]) => count).map(([count, name]) => `${count} ${name}`);
  return [`${step.num_right} of ${rollouts} right`, ...rest].join(", ");
}

function others(row, runs) {
  if (!row.others.length) return null;
  const rows = row.others.map((other) =>
    h("tr", {},
      h("th", { scope: "row" }, h("a", { href: address({ run: other.run, id: other.solution_id, step: "" }) }, runs[other.run])),
      h("td", {}, other.first_error === null ? "none" : `step ${other.first_error}`,
        other.first_error === row.first_error ? "" : " (differs)"),
      h("td", {}, strip(other))));
  return h("section", { "aria-label": "Other runs" },
    h("h3", {}, "The same solution in other runs"),
    h("table", {},
      h("thead", {}, h("tr", {}, ["run", "first error", "values"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows)));
}

function about(row) {
  const of = (counts) => `${counts.num_right} right, ${counts.num_wrong} wrong, ${counts.num_truncated} cut, ${counts.num_ungraded} unknown`;
  const facts = [
    ["solution", row.solution_id], ["origin", row.origin],
    ...Object.entries(row.meta).map(([name, value]) => [name.replace("_", " "), value]),
    ["all solutions of this problem", of(row.siblings)], ["rollouts of the bare problem", of(row.root)],
  ];
  if (row.priors) facts.push(["priors", row.priors]);
  return h("details", { class: "about" }, h("summary", {}, "More of this solution"),
    h("dl", { class: "facts" }, facts.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)))));
}

async function addScores(run, id, turn) {
  const scores = await get("scores", { run, id });
  if (turn !== newest) return;
  const entries = Object.entries(scores);
  const kept = document.querySelector(".step .open[aria-expanded=true]")?.closest(".step");
  const before = kept?.getBoundingClientRect().top;
  for (const node of document.querySelectorAll(".step")) {
    const line = node.querySelector(".scores");
    const index = Number(node.dataset.step);
    const last = node.nextElementSibling === null;
    const shown = entries.filter(([, { kind, scores: all }]) => all?.[index] !== undefined && (kind === "prm" || last));
    line.hidden = shown.length === 0;
    line.replaceChildren(
      ...shown.map(([name, { scores: all }]) =>
        h("span", { class: "score" }, h("span", { class: "name", title: name }, name), bar(all[index], null, null),
          h("b", {}, share(all[index])))));
  }
  if (kept) {  // what is being read stays where it is
    const moved = kept.getBoundingClientRect().top - before;
    for (const pane of [byId("solution"), window]) pane.scrollBy(0, moved);
  }
  const reasons = entries.filter(([, { reason }]) => reason).map(([name, { reason }]) => `${name}: ${reason}`);
  if (reasons.length) byId("solution").querySelector(".steps").after(h("p", { class: "quiet" }, `No scores: ${reasons.join("; ")}`));
}
