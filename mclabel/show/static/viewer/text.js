// Texts of models, which are never parsed as markup. LaTeX is typeset when it becomes visible.
import { get } from "./api.js";
import { h, plural } from "./dom.js";
import { go, view } from "./state.js";

// Control characters and direction marks, which could hide or reorder text.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    sight.unobserve(entry.target);
    if (!entry.target.closest(".code")) latex.typeset(entry.target, entry.target.formula);
  }
}, { rootMargin: "200px" });

const BLANK = /^(?:[^\S\n]*\n)+/;
const FENCES = /^[^\S\n]*(?:```|~~~)[\w+-]*[^\S\n]*(?:\n|$)/gm;

/**
 * Draw a text `{text, length}` that may be cut, with a button that loads further parts. `what` is
 * the name of the text in requests to the server. `places` are marked. Markdown fences of code are
 * left out.
 */
export function prose(cut, what, id, places = [], code = false) {
  const body = h("div", { class: "prose" });
  if (cut === null) {
    body.append(h("span", { class: "quiet" }, "none"));
    return body;
  }
  const now = view();
  const shown = size(cut.text);
  const bare = code && !places.length ? cut.text.replace(FENCES, "") : cut.text;
  const text = (places.length ? bare : bare.replace(BLANK, "")).trimEnd() || cut.text;
  fill(body, now.raw === "" && shown >= cut.length ? text : cut.text, now.raw === "", inUnits(places, cut.text));
  if (shown < cut.length) body.append(rest(shown, cut.length, what, id, now));
  return body;
}

/** Return the number of characters (code points), as the server counts them. */
const size = (text) => [...text].length;

/** Convert places from code points to UTF-16 units, in which JavaScript indexes strings. */
function inUnits(places, text) {
  if (!places.length) return [];
  const characters = [...text];
  const at = (count) => characters.slice(0, count).join("").length;
  return places.map(({ start, end, words }) => ({ start: at(start), end: at(end), words }));
}

function rest(shown, length, what, id, now) {
  const note = h("span", { class: "quiet" });
  const button = h("button", { type: "button" }, "Show more");
  const box = h("p", { class: "rest" }, note, " ", button);
  const count = () => {
    note.textContent = `${shown.toLocaleString("en")} of ${plural(length, "character")} shown.`;
    button.hidden = shown >= length;
  };
  button.addEventListener("click", async () => {
    button.disabled = true;
    const more = await get("text", { run: now.run, id, what, offset: shown });
    const part = h("span");
    fill(part, more.text, now.raw === "");
    box.before(part);
    shown += size(more.text);
    button.disabled = false;
    count();
  });
  count();
  return box;
}

function fill(node, text, typesets, places = []) {
  let from = 0;
  for (const formula of typesets ? latex.formulas(text) : []) {
    const { start, end, display } = formula;
    appendMarked(node, text, from, start, places);
    const math = h("span", { class: display ? "math display" : "math" });
    appendPlain(math, text.slice(start, end));
    math.formula = formula;
    markedNode(node, places, start, end).append(math); // a formula is marked as a whole
    sight.observe(math);
    from = end;
  }
  appendMarked(node, text, from, text.length, places);
}

/** Append a part of a text to a node, with its places marked. */
function appendMarked(node, text, from, to, places) {
  const inside = places.flatMap(({ start, end }) => [start, end]).filter((at) => at > from && at < to);
  const edges = [...new Set([from, ...inside, to])].sort((one, other) => one - other);
  for (const [number, edge] of edges.slice(1).entries()) {
    appendPlain(markedNode(node, places, edges[number], edge), text.slice(edges[number], edge));
  }
}

/** Return the node for a part of a text: a new mark if places overlap the part, else `node`. */
function markedNode(node, places, from, to) {
  const over = places.filter(({ start, end }) => start < to && end > from);
  if (!over.length) return node;
  const mark = h("mark", { title: over.map(({ words }) => visible(words)).join("\n") });
  node.append(mark);
  return mark;
}

/** Return a text with codes in place of its hidden characters. */
export const visible = (text) => text.replace(HIDDEN, codeOf);

const codeOf = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

function appendPlain(node, text) {
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    node.append(text.slice(from, found.index), h("span", { class: "hidden-character" }, codeOf(found[0])));
    from = found.index + 1;
  }
  node.append(text.slice(from));
}

export function toggleTypeset() {
  go({ raw: view().raw === "" ? "1" : "" }, { replace: true });
}
