// The overseer's page: progress and quality of each person's work, and disagreements between people.
import { get } from "../viewer/api.js";
import { byId, h, plural, setText } from "../viewer/dom.js";
import { prose } from "../viewer/text.js";

const shown = (estimate) =>
  estimate.value === null ? "not measurable yet" : `${estimate.value.toFixed(2)} [${estimate.low.toFixed(2)}, ${estimate.high.toFixed(2)}]`;

const rate = ({ num, num_right, low, high }) =>
  num ? `${num_right} of ${num}: ${(num_right / num).toFixed(2)} [${low.toFixed(2)}, ${high.toFixed(2)}]` : "none yet";

const table = (caption, heads, rows) =>
  h("table", {}, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map(([head, ...cells]) =>
      h("tr", {}, h("th", { scope: "row" }, head), cells.map((cell) => h("td", {}, cell))))));

function people(summary) {
  const rows = summary.people.map((one) => [
    one.name, `${one.num_done} of ${one.num_items}`, one.median_s === null ? "" : `${Math.round(one.median_s)} s`,
    String(one.num_unsure), rate(one.hidden),
  ]);
  const heads = ["Person", "Submitted", "Median time", "Without a verdict on the first error", "Right on hidden gold"];
  byId("people").replaceChildren(table("Submitted solutions of each person, with 95% intervals", heads, rows));
}

function difference(one) {
  const whole = (text, place) => prose({ text, length: 0 }, "", place);
  const heads = ["Step", ...one.labels.map((label) => `${label.person}: ${label.answer}`)];
  const rows = one.steps.map((text, index) => [
    whole(`${index}. ${text}`, `${one.id}-${index}`), ...one.labels.map((label) => label.ratings[index] ?? ""),
  ]);
  const notes = one.labels.filter((label) => label.note).map((label) => h("p", {}, `${label.person} notes: ${label.note}`));
  const address = `/?${new URLSearchParams({ id: one.id })}`;
  const act = one.settled ? "Settled: change the label of" : "Settle";
  return h("section", { "aria-label": `Solution ${one.id}` },
    h("h3", {}, `Solution ${one.id}`), whole(one.problem, one.id), h("p", {}, `Gold answer: ${one.answer}`),
    h("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": `Labels of solution ${one.id}` },
      table("Labels, side by side", heads, rows)),
    notes, h("p", {}, h("a", { href: address }, `${act} solution ${one.id}`)));
}

async function load() {
  try {
    const found = await get("overview");
    const { summary } = found;
    setText(byId("progress"), `${summary.num_done} of ${plural(summary.num_items, "solution")} labelled by at least one person`);
    people(summary);
    setText(byId("agreement"), summary.num_twice
      ? `${plural(summary.num_twice, "solution")} with a verdict on the first error by two people. Same first error: ${shown(summary.agreement)}. Krippendorff's alpha: ${shown(summary.alpha)}.`
      : "No solution has a verdict on the first error by two people yet. Agreement is shown when two people have rated the same solution.");
    const left = found.num_differ - found.differ.length;
    setText(byId("count"), `${plural(found.num_differ, "solution")}, of which you have settled ${found.num_settled}${left ? `; ${plural(left, "more solution")} not shown` : ""}.`);
    byId("differ").replaceChildren(...found.differ.map(difference));
    byId("fault").hidden = true;
  } catch (error) {
    setText(byId("fault"), error.message);
    byId("fault").hidden = false;
  }
}

byId("refresh").addEventListener("click", load);
await load();
