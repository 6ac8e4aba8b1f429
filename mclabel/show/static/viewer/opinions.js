// What judges and rollouts say of a solution, and why they point at places in its steps.
import { h } from "./dom.js";
import { visible } from "./text.js";
import { chip } from "./values.js";

/** Names and contents of facts: whether the labels are used, and what each source says. */
export function opinionFacts({ consensus }) {
  if (consensus === null) return [];
  return [
    [`Consensus, ${visible(consensus.rule)}`, [chip(consensus.kept ? "" : "differs", consensus.word)]],
    ...consensus.opinions.map(({ source, words }) => [visible(source), [words]]),
  ];
}

/** A list below a step; null if nobody points at anything. */
export function reasons(places) {
  if (!places.length) return null;
  return h("ul", { class: "reasons" }, places.map(({ words }) => h("li", {}, visible(words))));
}
