// The viewer. The page's address determines what is shown, and every part of the page follows it.
import { get } from "./api.js";
import { byId, h, plural, setText } from "./dom.js";
import { listenToExports, showExports } from "./exports.js";
import { setFilters, showFilters } from "./filters.js";
import { firstListed, isListed, listenToPager, mark, showList } from "./list.js";
import { onNotes, setRuns, startNotes } from "./notes.js";
import {
  compareNext, moveStep, previousAndNext, showOwn, showSolution, showStep, toFirstError, toggleFlag,
} from "./solution.js";
import { FILTERS, go, onChange, question, view } from "./state.js";
import { toggleTypeset } from "./text.js";

const POLL_MS = 2500;
let state = null;

async function attempt(task) {
  try {
    await task();
    if (!state?.fault) byId("fault").hidden = true;
  } catch (error) {
    fault(error.message);
  }
}

function fault(message) {
  setText(byId("fault"), message);
  byId("fault").hidden = false;
}

async function refresh() {
  const before = state;
  state = await get("state", { run: view().run });
  setRuns(state.identities, state.runs);
  const { total } = state.counts;
  const pending = state.pending ? `, reading ${plural(state.pending, "shard")} more` : "";
  setText(byId("status"), total || state.pending ? `${plural(total, "solution")}${pending}` : "no labels yet");
  if (state.fault) fault(state.fault);
  if (before?.version === state.version) return;
  showFilters(state.counts);
  if (before === null) showRuns();
  else {
    await showList();
    if (view().id === "") await showSolution(state);
  }
}

function showRuns() {
  const select = byId("run");
  select.replaceChildren(...state.runs.map((name, i) => h("option", { value: i }, name)));
  select.value = view().run || "0";
  select.closest("label").hidden = state.runs.length < 2;
}

const changed = (names, now, before) => names.some((name) => now[name] !== before[name]);

async function follow(now, before) {
  byId("typeset").setAttribute("aria-pressed", String(now.raw === ""));
  const asked = changed(["run", ...FILTERS], now, before);
  if (changed(["run"], now, before)) {
    byId("run").value = now.run || "0";
    state = { ...(await get("state", { run: now.run })) };
    showFilters(state.counts);
    setText(byId("status"), plural(state.counts.total, "solution"));
  }
  if (asked) {
    setFilters();
    await showList(0);
  }
  if (asked || changed(["id", "with", "sum", "raw"], now, before)) {
    const place = await showSolution(state);
    if (place !== null && place.offset !== null && !isListed(place.offset)) await showList(place.offset);
    mark();
  } else if (changed(["step"], now, before)) showStep(now);
}

async function move(way) {
  const id = view().id === "" ? firstListed() : previousAndNext()?.[way];
  if (id) go({ id, step: "", with: "" });
}

function escape() {
  const now = view();
  if (now.step !== "") {
    go({ step: "" });
    document.querySelector(`.step[data-step="${CSS.escape(now.step)}"] .open`)?.focus();
  } else if (now.with !== "") go({ with: "" });
  else if (now.sum !== "" && now.id === "") go({ sum: "" });
  else if (now.id !== "") {
    go({ id: "" });
    document.querySelector(`#list a[data-id="${CSS.escape(now.id)}"]`)?.focus();
  }
}

const KEYS = {
  j: () => move("next"),
  k: () => move("previous"),
  n: () => moveStep(1),
  p: () => moveStep(-1),
  f: toggleFlag,
  e: () => byId("note")?.focus(),
  c: compareNext,
  g: toFirstError,
  x: () => showExports(state.runs),
  t: toggleTypeset,
  Escape: escape,
  "/": () => byId("search").focus(),
  "?": () => byId("keys").showModal(),
  Enter: () => byId("solution").focus(),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input, select, textarea");
  if (typing && event.key === "Escape") typing.blur();
  const busy = typing || (event.key === "Enter" && event.target.closest("a, button, summary"));
  const act = KEYS[event.key];
  if (busy || act === undefined) return;
  event.preventDefault();
  attempt(act);
});

addEventListener("error", (event) => fault(event.message.replace(/^Uncaught Error: /, "")));
addEventListener("unhandledrejection", (event) => fault(event.reason.message));

onChange((now, before) => attempt(() => follow(now, before)));
byId("help").addEventListener("click", () => byId("keys").showModal());
byId("typeset").addEventListener("click", toggleTypeset);
byId("export").addEventListener("click", () => showExports(state.runs));
byId("sum").addEventListener("click", () => go({ sum: "1" }));
byId("run").addEventListener("change", (event) => {
  go({ run: event.target.value === "0" ? "" : event.target.value, id: "", step: "", with: "" });
});
startNotes();
onNotes(showOwn);
listenToPager();
listenToExports();

await attempt(async () => {
  await refresh();
  const { id } = view();
  const place = id === "" ? null : await get("place", { ...question(), id });
  await showList(place?.offset ?? 0);
  byId("typeset").setAttribute("aria-pressed", String(view().raw === ""));
  await showSolution(state);
  mark();
});
setInterval(() => {
  if (!document.hidden) attempt(refresh);
}, POLL_MS);
