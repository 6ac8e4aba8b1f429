// What a model wrote: text, never markup. LaTeX is typeset when it comes into sight.
import { get } from "./api.js";
import { h, plural } from "./dom.js";
import { go, view } from "./state.js";

const MAX_FORMULA = 2000; // characters; longer ones stay text
const MAX_FORMULAS = 300; // of one text
const MATH = new RegExp(
  [
    String.raw`\$\$([^$]+)\$\$`,
    String.raw`\\\[([\s\S]+?)\\\]`,
    String.raw`\\\(([\s\S]+?)\\\)`,
    String.raw`\$(?! )((?:\\.|[^$\\\n])+?)(?<![ \\])\$(?!\d)`,
    String.raw`(\\boxed\{(?:[^{}\n]|\{(?:[^{}\n]|\{[^{}\n]*\})*\})*\})`,
  ].join("|"),
  "g",
);
// Control and direction marks would hide or reorder what is read.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

// Of commands that only a trusted text may use, KaTeX shows the name in place of what they show.
const itsText = (context) => {
  context.lexer.setCatcode("%", 13); // part of an address, no comment
  const [, text] = context.consumeArgs(2);
  context.lexer.setCatcode("%", 14);
  return { tokens: text, numArgs: 0 };
};
const asWritten = () => {
  throw new Error("stays as it was written");
};
const UNTRUSTED = {
  "\\href": itsText, "\\htmlClass": itsText, "\\htmlId": itsText, "\\htmlStyle": itsText,
  "\\htmlData": itsText,
  "\\url": asWritten, "\\includegraphics": asWritten,
};

const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    sight.unobserve(entry.target);
    if (!entry.target.closest(".code")) typeset(entry.target);
  }
}, { rootMargin: "200px" });

/**
 * A bounded text `{text, length}`, with a button for the rest of it. `what` names it to the server,
 * `places` in it are marked.
 */
export function prose(cut, what, id, places = []) {
  const body = h("div", { class: "prose" });
  if (cut === null) {
    body.append(h("span", { class: "quiet" }, "none"));
    return body;
  }
  const now = view();
  fill(body, cut.text, now.raw === "", inUnits(places, cut.text));
  const shown = size(cut.text);
  if (shown < cut.length) body.append(rest(shown, cut.length, what, id, now));
  return body;
}

/** In characters, as the server counts them. */
const size = (text) => [...text].length;

/** Places counted as strings are here, where some characters take two units. */
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
  let formulas = 0;
  if (typesets) {
    for (const found of text.matchAll(MATH)) {
      const formula = found.slice(1).find((group) => group !== undefined);
      if (formula.length > MAX_FORMULA || formulas === MAX_FORMULAS) continue;
      marked(node, text, from, found.index, places);
      const display = found[0].startsWith("$$") || found[0].startsWith("\\[");
      const math = h("span", { class: display ? "math display" : "math" });
      plain(math, found[0]);
      math.formula = formula;
      const end = found.index + found[0].length;
      within(node, places, found.index, end).append(math); // a formula is marked as a whole
      sight.observe(math);
      formulas += 1;
      from = end;
    }
  }
  marked(node, text, from, text.length, places);
}

/** A part of a text, with the places in it marked. */
function marked(node, text, from, to, places) {
  const inside = places.flatMap(({ start, end }) => [start, end]).filter((at) => at > from && at < to);
  const edges = [...new Set([from, ...inside, to])].sort((one, other) => one - other);
  for (const [number, edge] of edges.slice(1).entries()) {
    plain(within(node, places, edges[number], edge), text.slice(edges[number], edge));
  }
}

/** Where a part of a text belongs: a mark in the node if places reach into it, else the node. */
function within(node, places, from, to) {
  const over = places.filter(({ start, end }) => start < to && end > from);
  if (!over.length) return node;
  const mark = h("mark", { title: over.map(({ words }) => visible(words)).join("\n") });
  node.append(mark);
  return mark;
}

/** A text with its hidden characters as their codes. */
export const visible = (text) => text.replace(HIDDEN, codeOf);

const codeOf = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

function plain(node, text) {
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    node.append(text.slice(from, found.index), h("span", { class: "hidden-character" }, codeOf(found[0])));
    from = found.index + 1;
  }
  node.append(text.slice(from));
}

function typeset(node) {
  const draft = h("span");
  try {
    katex.render(node.formula, draft, {
      displayMode: node.classList.contains("display"),
      throwOnError: true, trust: false, strict: "ignore", maxSize: 20, maxExpand: 200,
      macros: { ...UNTRUSTED },
    });
  } catch {
    node.classList.add("broken"); // stays as it was written
    node.title = "not valid LaTeX";
    return;
  }
  node.replaceChildren(draft);
}

export function toggleTypeset() {
  go({ raw: view().raw === "" ? "1" : "" }, { replace: true });
}
