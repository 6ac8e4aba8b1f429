// The rollouts from one step: counts of their answers, the reasons for the verdicts, and the texts.
import { get } from "./api.js";
import { h, plural } from "./dom.js";
import { prose } from "./text.js";
import { OUTCOMES, chip } from "./values.js";

const REASONS = {
  equal: "equals the gold answer", different: "differs from the gold answer", empty_answer: "the answer is empty",
  no_answer: "no answer found", timeout: "the checker exceeded its time limit", too_long: "the answer is too long to compare",
  not_comparable: "the answer cannot be compared with the gold answer",
};
const LAYERS = {
  text: "as text", number: "as exact numbers", form: "by its form", sympy: "by algebra", extract: "", none: "",
};

/** Load the rollouts from a step, and show them in the step's panel. */
export async function showRollouts(panel, run, id, step) {
  panel.replaceChildren(h("p", { class: "quiet" }, "Loading the rollouts…"));
  let first;
  try {
    first = await get("rollouts", { run, id, step });
  } catch (error) {
    panel.replaceChildren(h("p", { role: "alert" }, error.message));
    return;
  }
  const why = first.answers.map((one) => h("td", {}, nothing(one) ?? h("span", { class: "quiet" }, "…")));
  const list = h("ol", { class: "rollout-list", start: "0" });
  const more = h("button", { type: "button" }, "Show more rollouts");
  const code = panel.closest(".code") !== null;
  const add = (part) => {
    list.append(...part.rows.map((row) => rollout(row, id, step, code)));
    more.hidden = part.offset + part.rows.length >= first.total;
  };
  more.addEventListener("click", async () => {
    add(await get("rollouts", { run, id, step, offset: list.children.length }));
  });
  add(first);
  panel.replaceChildren(
    h("table", {},
      h("caption", {}, `Answers of ${plural(first.total, "rollout")}`),
      h("thead", {}, h("tr", {}, ["answer", "times", "verdict", "why"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, first.answers.map((one, i) =>
        h("tr", {},
          h("th", { scope: "row" }, one.answer === null ? "none" : one.answer.text),
          h("td", { class: "figure" }, one.count.toLocaleString("en")),
          h("td", {}, chip(one.outcome, OUTCOMES[one.outcome])), why[i])))),
    first.num_answers > first.answers.length ? h("p", { class: "quiet" }, `${first.num_answers} different answers; the most frequent are shown.`) : "",
    list, more);
  explain(await get("grades", { run, id, step }), first.answers, why);
}

function nothing({ answer, outcome, reason }) {
  if (outcome === "truncated") return "truncated at the maximum length";
  if (answer !== null) return null;
  return reason === null ? "no answer found" : words(reason);
}

/** Return a checker's reason in words. Reasons of custom checkers are shown as they are. */
function words(reason) {
  return REASONS[reason] ?? (/^[a-z_]+$/.test(reason) ? reason.replaceAll("_", " ") : reason);
}

function explain({ checker, grades }, answers, cells) {
  grades.forEach((grade, i) => {
    if (grade === null || nothing(answers[i]) !== null) return;
    cells[i].textContent = [words(grade.reason), LAYERS[grade.layer] ?? grade.layer].filter(Boolean).join(", ");
    const then = { right: "right", wrong: "wrong", ungraded: "unknown" }[answers[i].outcome];
    if (grade.verdict !== then) {
      cells[i].append(h("strong", {}, ` (checker ${checker} now says ${grade.verdict})`));
    }
  });
}

function rollout(row, id, step, code) {
  const reason = row.reason === null ? "" : ` · ${words(row.reason)}`;
  return h("li", {},
    h("p", { class: "rollout-head" },
      h("span", { class: "quiet" }, `${row.completer === "policy" ? "" : `${row.completer} `}${row.index} · `), chip(row.outcome, OUTCOMES[row.outcome]),
      h("span", { class: "quiet" }, ` ${row.answer === null ? "no answer" : `answers ${row.answer.text}`} · ${plural(row.num_tokens, "token")}${reason}`)),
    prose(row.text, `rollout.${step}.${row.completer}.${row.index}`, id, [], code));
}
