// The view is its address: every filter, the solution, the open step.

export const FILTERS = [
  "q", "outcome", "error", "mark", "answer_type", "family", "level", "subject", "width", "sort",
];
const NAMES = ["run", ...FILTERS, "id", "step", "with", "sum", "raw"];

const listeners = new Set();

/** The view as an object of texts; what is not set is "". */
export function view() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""]));
}

/** The filters alone, as the server takes them. */
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

/** Go to a changed view. `replace` leaves no trace in the history. */
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
