// The form with search and filters above the list of solutions.
import { byId, h } from "./dom.js";
import { FILTERS, go, view } from "./state.js";

export const MARKS = {
  lucky: "lucky: right answer through a wrong step",
  truth: "labelled first error differs from the true one",
  runs: "labelled first error differs between runs",
  truncated: "truncated solution or rollouts",
  unknown: "ungraded solution or rollouts",
  undecided: "graded, but first error undecided",
  unkept: "not kept: opinions disagree",
};
const ERRORS = { any: "any step", none: "no error", undecided: "undecided" };
const NAMES = {
  mark: "Show", outcome: "Outcome", error: "First error", width: "Interval", sort: "Order",
  answer_type: "Answer type", family: "Family", level: "Level", subject: "Subject",
};
const FIXED = {
  width: [["", "any width"], ["0.25", "0.25 or wider"], ["0.5", "0.50 or wider"], ["0.75", "0.75 or wider"]],
  sort: [
    ["", "as labelled"], ["width", "widest interval"], ["fall", "largest fall"], ["steps", "most steps"],
    ["tokens", "most tokens"],
  ],
};

/** Draw the form with the values that occur in a run, and select the values of the view. */
export function showFilters(counts) {
  const form = byId("filters");
  if (!form.children.length) build(form);
  for (const [name, options] of Object.entries(choices(counts))) {
    const select = form.elements[name];
    const kept = view()[name];
    if (kept && !options.some(([value]) => value === kept)) options.push([kept, kept]);
    const wanted = JSON.stringify(options);
    if (select.dataset.options !== wanted && document.activeElement !== select) {
      select.replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
      select.dataset.options = wanted;
    }
    const fewest = name === "mark" ? 2 : 3; // one mark is a useful filter; one other value is not
    select.closest("label").hidden = options.length < fewest && !kept;
  }
  setFilters();
}

export function setFilters() {
  const now = view();
  const { elements } = byId("filters");
  for (const name of FILTERS) {
    if (elements[name] && document.activeElement !== elements[name]) elements[name].value = now[name];
  }
  byId("clear").hidden = FILTERS.every((name) => name === "sort" || now[name] === "");
}

function choices({ marks, errors, by }) {
  const numbered = (entries, name = (value) => value) =>
    entries.map(([value, count]) => [value, `${name(value)} (${count.toLocaleString("en")})`]);
  const found = (counts) => Object.entries(counts).filter(([, count]) => count);
  const listed = (name) => [["", "all"], ...numbered(Object.entries(by[name] ?? {}))];
  return {
    outcome: listed("outcome"),
    error: [
      ["", "all"],
      ...numbered(found(errors), (kind) => ERRORS[kind]),
      ...numbered(Object.entries(by.first_error ?? {}), (step) => `at step ${step}`),
    ],
    mark: [
      ["", "all solutions"],
      ...numbered(found(marks), (mark) => MARKS[mark]),
    ],
    answer_type: listed("answer_type"), family: listed("family"), level: listed("level"),
    subject: listed("subject"), ...FIXED,
  };
}

function build(form) {
  let waiting;
  const search = h("input", {
    type: "search", name: "q", id: "search", autocomplete: "off", spellcheck: "false",
    placeholder: "words, numbers, ids", maxlength: "500",
    input: (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => go({ q: event.target.value }, { replace: true }), 200);
    },
  });
  form.append(h("label", { class: "wide" }, h("span", {}, "Search"), search));
  for (const [name, text] of Object.entries(NAMES)) {
    form.append(
      h("label", { class: name === "mark" ? "double" : "" }, h("span", {}, text),
        h("select", { name, change: (event) => go({ [name]: event.target.value }) })),
    );
  }
  const clear = h("button", { type: "button", id: "clear", click: () => {
    form.elements.q.value = "";
    go(Object.fromEntries(FILTERS.map((name) => [name, ""])));
  } }, "Clear filters");
  form.append(clear);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    document.querySelector("#list a")?.focus();
  });
}
