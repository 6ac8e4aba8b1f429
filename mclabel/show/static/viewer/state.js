// The view is stored in the page's address: the filters, the open solution and the open step.

export const FILTERS = [
  "q", "outcome", "error", "mark", "answer_type", "family", "level", "subject", "width", "sort",
];
const NAMES = ["run", ...FILTERS, "id", "step", "with", "sum", "raw"];

const listeners = new Set();

/** Return the view as an object of texts, with "" for each parameter that is not set. */
export function view() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""]));
}

/** Return only the run and the filters of a view, as parameters for the server. */
export function question(now = view()) {
  return Object.fromEntries(["run", ...FILTERS].map((name) => [name, now[name]]));
}

export function address(changes) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...view(), ...changes })) {
    if (NAMES.includes(name) && value !== "" && value !== null) query.set(name, value);
  }
  return `/?${query}`;
}

/** Change the view. `replace` replaces the current entry in the browser's history. */
export function go(changes, { replace = false } = {}) {
  const before = view();
  history[replace ? "replaceState" : "pushState"](null, "", address(changes));
  for (const listener of listeners) listener(view(), before);
}

export function onChange(listener) {
  listeners.add(listener);
}

let shown = view();
addEventListener("popstate", () => {
  for (const listener of listeners) listener(view(), shown);
});
onChange((now) => {
  shown = now;
});
