// Values of steps and opinions on them as numbers, bars and words.
import { h } from "./dom.js";
import { visible } from "./text.js";

export const OUTCOMES = {
  right: "right", wrong: "wrong", truncated: "cut", ungraded: "ungraded",
};

export const share = (value) => (value === null ? "?" : value.toFixed(2));

const SOUND = { 1: "sound", 0: "wrong" };
export const decision = (hard) => SOUND[Number(hard ?? NaN)] ?? "no verdict";

/** Where a first error is in truth, and where a label puts it, if the label says so. */
export const stepName = (index) => (index === null ? "none" : `step ${index}`);
export const labelled = ({ first_error, decided }) => (first_error === null && !decided ? "undecided" : stepName(first_error));

/** The same in words that stand alone. */
export function errorWords({ first_error, decided }) {
  if (first_error !== null) return `error at ${first_error}`;
  return decided ? "no error" : "undecided";
}

export function chip(kind, text) {
  return h("span", { class: `chip ${kind}` }, text);
}

const MAX_BARS = 64; // of a strip

/** Small bars, one a step, or one a group of steps with the lowest value of each. */
export function strip(row) {
  const { vals, hard } = row.vals.length > MAX_BARS ? lowest(row) : row;
  const words = vals.map((value, i) => (value === null ? decision(hard[i]) : share(value)));
  const bars = vals.map((value, i) => {
    const bar = h("span", { class: value === null ? `none ${decision(hard[i])}` : "" });
    if (value !== null) bar.style.setProperty("--v", value);
    return bar;
  });
  const of = vals === row.vals ? "step values" : `lowest values of ${vals.length} groups of steps`;
  const label = `${of} ${words.join(", ")}`;
  return h("span", { class: "strip", role: "img", title: label, "aria-label": label }, bars);
}

/** Of each of `MAX_BARS` groups of neighbouring steps the lowest value and label. */
function lowest({ vals, hard }) {
  const least = (all) => {
    const given = all.filter((one) => one !== null);
    return given.length ? given.reduce((one, other) => (one < other ? one : other)) : null;
  };
  const at = (group) => Math.floor((group * vals.length) / MAX_BARS);
  const groups = Array.from({ length: MAX_BARS }, (_, group) => [at(group), at(group + 1)]);
  return { vals: groups.map(([a, b]) => least(vals.slice(a, b))), hard: groups.map(([a, b]) => least(hard.slice(a, b))) };
}

/** A bar with the interval over it. */
export function bar(value, low, high) {
  const node = h("span", { class: value === null ? "value-bar unknown" : "value-bar", "aria-hidden": "true" });
  if (value !== null) {
    node.append(h("span", { class: "fill" }));
    node.style.setProperty("--v", value);
  }
  if (low !== null) {
    const range = h("span", { class: "range" });
    range.style.setProperty("--from", low);
    range.style.setProperty("--to", high);
    node.append(range);
  }
  return node;
}

const SOURCES = {
  fixed: "a fixed number of rollouts; sound if one ends right",
  first_success: "rolled out until one ended right, or the cap; sound if one did",
  posterior: "by the posterior of the first error, sound before the likeliest; the expected value takes all evidence together",
  implied: "not rolled out: follows from other steps or the outcome",
  outcome: "the last step: the solution's own outcome",
  judge: "by the judge that was asked; its scores are the expected values",
  given: "imported: somebody else's label",
  none: "no label",
};
export const sourceText = (source) => SOURCES[source] ?? source;

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
