// The annotation page: it shows one solution, records the ratings of its steps, and then shows the
// next solution.
import { get } from "../viewer/api.js";
import { byId, h, plural, setText } from "../viewer/dom.js";
import { prose } from "../viewer/text.js";
import { isTests, labelled, share, stepName, testWords } from "../viewer/values.js";
import { dropDraft, sendUnsent, storeEvent, loadDraft, openQueue, saveDraft, unsentEvents } from "./queue.js";

const RATINGS = ["good", "okay", "bad", "unsure"];
const RETRY_MS = 3000;
const IDLE_MS = 60_000; // after this time without a key or a click, the timer stops
let state; // state from the server: person, ids of the items, submitted events by id
let shown = null; // open solution: its item, its draft, `at` (index of the current step), undo states
let onward = null; // last submitted event, until the next solution is shown; null otherwise
let active = Date.now(); // time of the last key or click

async function attempt(task) {
  try {
    await task();
    byId("fault").hidden = true;
  } catch (error) {
    setText(byId("fault"), error.message);
    byId("fault").hidden = false;
  }
  progress();
}

function progress() {
  if (!state) return;
  const done = state.items.filter((id) => state.done[id]).length;
  const what = state.oversees ? "Disagreements to settle: " : "";
  setText(byId("progress"), `${what}${done} of ${plural(state.items.length, "solution")} submitted`);
  const unsent = unsentEvents().length;
  setText(byId("unsent"), unsent ? `${unsent} not sent yet` : "");
}

const firstBad = () => shown.draft.ratings.indexOf("bad");
const isAfter = (index) => firstBad() >= 0 && index > firstBad() && !shown.draft.goOn;

async function show(id) {
  const item = await get("item", { id });
  const before = state.done[id];
  const draft = loadDraft(id) ?? (before
    ? { ratings: [...before.ratings], note: before.note, goOn: false, ms: before.ms }
    : { ratings: item.steps.map(() => null), note: "", goOn: false, ms: 0 });
  const open = draft.ratings.indexOf(null);
  shown = { item, draft, at: open < 0 || draft.ratings.includes("bad") ? 0 : open, past: [] };
  const code = isTests(item.answer);
  const whole = (text) => prose({ text, length: 0 }, "", id, [], code);
  byId("solution").replaceChildren(
    h("section", { class: "problem-text", "aria-label": "Problem" }, h("h3", {}, "Problem"), whole(item.problem)),
    h("section", { "aria-label": "Gold answer" }, h("h3", {}, "Gold answer"),
      code ? h("details", { class: "code" }, h("summary", {}, testWords(item.answer)), whole(item.answer)) : whole(item.answer)),
    h("section", { "aria-label": "Steps" }, h("h3", {}, plural(item.steps.length, "step")),
      h("ol", { class: code ? "steps code" : "steps", start: "0" }, item.steps.map((text, index) => step(whole(text), index)))),
  );
  byId("tools").hidden = false;
  byId("note").value = draft.note;
  paint();
  focusStep();
  tick();
  if (before && state.shows_run) await showRun(id);
}

function step(text, index) {
  const buttons = RATINGS.map((word, number) =>
    h("button", { type: "button", "data-word": word, "aria-pressed": "false", click: () => act(() => rate(word, index)) },
      `${word} `, h("kbd", { "aria-hidden": "true" }, String(number + 1))));
  return h("li", { class: "step no-value", "data-step": index, tabindex: "-1" },
    h("div", { class: "step-body", click: () => move(index) }, h("span", { class: "number", "aria-hidden": "true" }, String(index)), text),
    h("div", { class: "ratings", role: "group", "aria-label": `Rating of step ${index}` }, buttons, h("span", { class: "run" })),
    h("p", { class: "meaning quiet" }, "Okay: the step is right, but it does not help.", h("br"), "Unsure: you cannot tell whether the step is right."));
}

function paint() {
  const { ratings, goOn } = shown.draft;
  for (const node of document.querySelectorAll(".step")) {
    const index = Number(node.dataset.step);
    const word = ratings[index];
    node.classList.toggle("sound", word === "good" || word === "okay");
    node.classList.toggle("wrong", word === "bad");
    node.classList.toggle("after", isAfter(index));
    node.toggleAttribute("aria-current", index === shown.at);
    if (index === shown.at) node.setAttribute("aria-current", "step");
    node.setAttribute("aria-label", `Step ${index}, ${word ?? "not rated"}`);
    for (const button of node.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.dataset.word === word));
      button.disabled = isAfter(index);
    }
  }
  byId("go-on").setAttribute("aria-pressed", String(goOn));
  byId("go-on").disabled = firstBad() < 0;
}

function focusStep() {
  document.querySelector(`.step[data-step="${shown.at}"]`)?.focus();
}

function move(index) {
  if (!shown || index < 0 || index >= shown.item.steps.length) return;
  shown.at = index;
  paint();
  focusStep();
}

function change(made) {
  shown.past.push({ draft: structuredClone(shown.draft), at: shown.at });
  made(shown.draft);
  saveDraft(shown.item.id, shown.draft);
}

function rate(word, index = shown.at) {
  if (isAfter(index)) throw new Error(`Step ${firstBad()} is rated bad, so later steps need no rating. Press g to rate them, too.`);
  change((draft) => {
    draft.ratings[index] = word;
  });
  const last = index === shown.item.steps.length - 1 || isAfter(index + 1);
  move(last ? index : index + 1);
}

async function undo() {
  const before = shown.past.pop();
  if (before !== undefined) {
    const { ms } = shown.draft;
    shown.draft = { ...before.draft, ms };
    saveDraft(shown.item.id, shown.draft);
    byId("note").value = shown.draft.note;
    move(before.at);
    return;
  }
  const place = state.items.indexOf(shown.item.id);
  if (place > 0) await show(state.items[place - 1]);
}

function goOn() {
  if (firstBad() < 0) return;
  change((draft) => {
    draft.goOn = !draft.goOn;
  });
  move(shown.draft.goOn ? Math.min(firstBad() + 1, shown.item.steps.length - 1) : firstBad());
}

/** Submit the ratings of the open solution. `finish` is "give_up", "bad_problem" or undefined. */
async function submit(finish) {
  const { item, draft } = shown;
  const bad = firstBad();
  const ratings = draft.ratings.map((word, index) => (isAfter(index) ? null : word));
  if (finish === undefined) {
    const missing = (bad < 0 ? ratings : ratings.slice(0, bad)).indexOf(null);
    if (missing >= 0) {
      move(missing);
      throw new Error(`Step ${missing} is not rated yet.`);
    }
  } else if (draft.note.trim() === "") {
    byId("note").focus();
    throw new Error("Write the reason as a note, leave the note field with Esc, and press the key or the button again.");
  }
  const event = {
    id: crypto.randomUUID(), person: state.person, solution: item.id, digest: item.digest, ratings,
    finish: finish ?? (bad < 0 ? "solution" : "found_error"), note: draft.note, ms: Math.round(draft.ms),
    at: Date.now(), revision: (state.done[item.id]?.revision ?? 0) + 1,
  };
  storeEvent(event);
  dropDraft(item.id);
  state.done[item.id] = event;
  onward = event;
  await advance();
}

/** Send the waiting events, and show the next solution. If sending fails, it is retried later. */
async function advance() {
  let fault = null;
  try {
    await sendUnsent();
  } catch (error) {
    fault = error;
  }
  if (onward !== null) {
    const event = onward;
    let next = nextOpen(event.solution);
    if (next === undefined && fault === null) {
      await renew();
      next = nextOpen(event.solution);
    }
    if (next === undefined) finished();
    else await show(next);
    onward = null;
    await showBefore(event);
  }
  if (fault !== null) throw fault;
}

function nextOpen(id) {
  const place = state.items.indexOf(id) + 1;
  return [...state.items.slice(place), ...state.items.slice(0, place)].find((one) => !state.done[one]);
}

function finished() {
  shown = null;
  byId("tools").hidden = true;
  byId("timer").textContent = "";
  byId("solution").replaceChildren(
    h("h2", {}, state.items.length ? "All solutions are submitted." : "There is nothing to label."),
    h("p", {}, state.items.length ? "Your ratings are saved, and you can close the page. " : "Ask the person who started this server for more solutions, or reload the page later. ",
      h("a", { href: "/summary" }, "Open the summary as JSON"), "."));
  byId("solution").focus();
}

/** Show the run's label of the solution that was submitted last. */
async function showBefore(event) {
  const box = byId("before");
  const own = event.ratings.indexOf("bad");
  const again = h("button", { type: "button", click: () => attempt(() => show(event.solution)) }, "Look at it again");
  const said = ["found_error", "solution"].includes(event.finish) ? stepName(own < 0 ? null : own) : "nothing";
  let run = "is shown after your ratings have been sent";
  if (!state.shows_run) run = null;
  else if (!unsentEvents().some((one) => one.id === event.id)) run = labelled(await get("labels", { id: event.solution }));
  box.replaceChildren(h("span", {}, `Submitted. First error: you ${said}${run === null ? "" : `, the run ${run}`}.`), again);
  box.hidden = false;
}

/** Show the run's values beside the steps of a submitted solution. */
async function showRun(id) {
  if (unsentEvents().some((one) => one.solution === id)) return;
  const row = await get("labels", { id });
  if (shown?.item.id !== id) return;
  for (const node of document.querySelectorAll(".step")) {
    const index = Number(node.dataset.step);
    const value = row.values[index];
    const parts = [value === null ? "no value" : `value ${share(value)}`];
    if (index === row.first_error) parts.push("first error");
    setText(node.querySelector(".run"), `run: ${parts.join(", ")}`);
  }
}

function tick() {
  if (!shown) return;
  const seconds = Math.floor(shown.draft.ms / 1000);
  byId("timer").textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

const KEYS = {
  1: () => rate("good"), 2: () => rate("okay"), 3: () => rate("bad"), 4: () => rate("unsure"),
  j: () => move(shown.at + 1), ArrowDown: () => move(shown.at + 1),
  k: () => move(shown.at - 1), ArrowUp: () => move(shown.at - 1),
  u: undo, g: goOn, n: () => byId("note").focus(),
  x: () => submit("give_up"), p: () => submit("bad_problem"), Enter: () => submit(),
};

let busy = false; // true during an action, so that pressing Enter twice submits once

async function act(task) {
  if (busy || !shown || onward !== null) return;
  busy = true;
  await attempt(task);
  busy = false;
}

addEventListener("keydown", (event) => {
  active = Date.now();
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("textarea")) {
    if (event.key === "Escape") focusStep();
    return;
  }
  if (event.key === "?") byId("keys").showModal();
  const pressed = event.key === "Enter" && event.target.closest("a, button");
  if (pressed || KEYS[event.key] === undefined || event.repeat) return;
  event.preventDefault();
  act(KEYS[event.key]);
});
addEventListener("pointerdown", () => {
  active = Date.now();
});
byId("note").addEventListener("input", (event) => {
  shown.draft.note = event.target.value;
  saveDraft(shown.item.id, shown.draft);
});
const TOOLS = { undo, "go-on": goOn, "give-up": KEYS.x, "bad-problem": KEYS.p, submit: KEYS.Enter };
for (const [id, task] of Object.entries(TOOLS)) byId(id).addEventListener("click", () => act(task));
byId("help").addEventListener("click", () => byId("keys").showModal());
byId("rules").addEventListener("click", () => byId("guidelines").showModal());

let last = Date.now();
setInterval(() => {
  const now = Date.now();
  if (shown && !document.hidden && now - active < IDLE_MS) shown.draft.ms += now - last;
  last = now;
  tick();
}, 500);
setInterval(() => {
  if (state && !busy && (unsentEvents().length || onward !== null)) attempt(advance);
}, RETRY_MS);

/** Load the state again from the server. */
async function renew() {
  const found = await get("state");
  openQueue(found.folder, found.person);
  for (const event of unsentEvents()) found.done[event.solution] = event;
  state = found;
}

await attempt(async () => {
  await renew();
  setText(byId("who"), state.person);
  byId("overview").hidden = !state.oversees;
  if (state.guidelines !== null) {
    byId("rules").hidden = false;
    byId("guidelines").querySelector("pre").textContent = state.guidelines;
  }
  const asked = state.oversees ? new URLSearchParams(location.search).get("id") : null;
  const first = asked ?? state.items.find((id) => !state.done[id]);
  if (first === undefined) finished();
  else await show(first);
  await advance();
});
