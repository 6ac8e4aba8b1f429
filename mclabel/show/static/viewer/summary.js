// Charts over all solutions that match the filter. The name of a bar can be a button that filters.
import { get } from "./api.js";
import { h, plural } from "./dom.js";
import { go, question, view } from "./state.js";
import { OUTCOMES } from "./values.js";

let newest = 0;

/** Fill `node` with the summary of the view's filter. */
export async function showSummary(node) {
  const turn = ++newest;
  node.setAttribute("aria-busy", "true");
  const found = await get("summary", question());
  if (turn !== newest) return;
  node.setAttribute("aria-busy", "false");
  if (node.contains(document.activeElement)) return; // do not replace a chart that has the focus
  node.replaceChildren(
    h("p", { class: "found" },
      h("strong", {}, plural(found.total, "solution")), ` to ${plural(found.num_problems, "problem")}, ${plural(found.num_steps, "step")}`),
    ...(found.total ? [h("div", { class: "charts" }, h("div", { class: "stack" }, outcomes(found), values(found)), errors(found))] : []));
}

function outcomes({ outcomes: counts, total }) {
  const rows = Object.keys(OUTCOMES).filter((name) => counts[name]).map((name) => ({
    name: OUTCOMES[name], filter: { outcome: name }, count: counts[name], kind: name,
  }));
  return chart("Outcomes", "outcome", rows, total);
}

function errors({ errors: labelled, truths, total, num_with_truth }) {
  const places = [...new Set([...Object.keys(labelled), ...Object.keys(truths)])].filter((place) => /^\d+$/.test(place));
  const last = Math.max(-1, ...places.map(Number));
  const rows = Array.from({ length: last + 1 }, (_, step) => ({
    name: step === 12 ? "step 12 and later" : `step ${step}`, filter: step === 12 ? null : { error: String(step) },
    count: labelled[step] ?? 0, truth: truths[step] ?? 0, kind: "wrong",
  }));
  rows.push({ name: "none", filter: { error: "none" }, count: labelled.none ?? 0, truth: truths.none ?? 0, kind: "right" });
  if (labelled.undecided) rows.push({ name: "undecided", filter: { error: "undecided" }, count: labelled.undecided, truth: 0 });
  return chart("First errors", "first error", rows, total, num_with_truth, num_with_truth ? "Thin lines show the true first errors." : "");
}

function values({ values: counts }) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  const rows = counts.map((count, i) => ({ name: `${(i / 10).toFixed(1)} to ${((i + 1) / 10).toFixed(1)}`, filter: null, count, value: (i + 0.5) / 10 }));
  if (total === 0) return h("section", {}, h("h3", {}, "Values of steps"), h("p", { class: "quiet" }, "No step of these solutions has a value: the labels are verdicts."));
  return chart("Values of steps", "value", rows, total, 0, "The last step of each solution is left out, because its label is the outcome.");
}

function chart(title, first, rows, total, withTruth = 0, note = "") {
  const most = Math.max(1, ...rows.map((row) => Math.max(row.count / total, withTruth ? row.truth / withTruth : 0) * total));
  const heads = [first, "", "labelled", "share", ...(withTruth ? ["true"] : [])];
  if (!withTruth) heads[2] = "count";
  return h("section", {},
    h("h3", {}, title),
    h("table", { class: "chart", "aria-label": title },
      h("thead", {}, h("tr", {}, heads.map((name, i) => (name === "" ? h("td", {}) : h("th", { scope: "col", class: i > 1 ? "figure" : null }, name))))),
      h("tbody", {}, rows.map((row) => line(row, total, most, withTruth)))),
    note ? h("p", { class: "quiet" }, note) : null);
}

function line(row, total, most, withTruth) {
  const bar = h("span", { class: `length ${row.kind ?? ""}` });
  bar.style.setProperty("--share", row.count / most);
  if (row.value !== undefined) bar.style.setProperty("--v", row.value);
  const bars = [bar];
  if (withTruth) {
    const truth = h("span", { class: "length truth" });
    truth.style.setProperty("--share", (row.truth / withTruth) * (total / most));
    bars.push(truth);
  }
  const share = (count, of) => (of ? `${((100 * count) / of).toFixed(count > 0 && count / of < 0.1 ? 1 : 0)}%` : "");
  return h("tr", {},
    h("th", { scope: "row" }, row.filter === null || row.count === 0 ? row.name : button(row)),
    h("td", { class: "bars", "aria-hidden": "true" }, bars),
    h("td", { class: "figure" }, row.count.toLocaleString("en")),
    h("td", { class: "figure quiet" }, share(row.count, total)),
    withTruth ? h("td", { class: "figure quiet" }, share(row.truth, withTruth)) : null);
}

function button({ name, filter }) {
  const [[field, value]] = Object.entries(filter);
  const on = view()[field] === value;
  return h("button", { type: "button", class: "plain", "aria-pressed": String(on), click: ({ target }) => {
    target.blur(); // charts that have the focus are not redrawn
    go({ [field]: on ? "" : value });
  } }, name);
}
