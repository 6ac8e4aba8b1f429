// Step values, labels and opinions as numbers, bars and words.
import { h, plural } from "./dom.js";
import { visible } from "./text.js";

export const OUTCOMES = {
  right: "right", wrong: "wrong", truncated: "truncated", ungraded: "ungraded",
};

export const share = (value) => (value === null ? "?" : value.toFixed(2));

const SOUND = { 1: "sound", 0: "wrong" };
export const decision = (hard) => SOUND[Number(hard ?? NaN)] ?? "no verdict";

/** Return the place of a true first error, and of a labelled one, which can be undecided. */
export const stepName = (index) => (index === null ? "none" : `step ${index}`);
export const labelled = ({ first_error, decided }) => (first_error === null && !decided ? "undecided" : stepName(first_error));

/** Return the labelled first error in words that need no heading. */
export function errorWords({ first_error, decided }) {
  if (first_error !== null) return `error at ${first_error}`;
  return decided ? "no error" : "undecided";
}

export function chip(kind, text) {
  return h("span", { class: `chip ${kind}` }, text);
}

const MAX_BARS = 64; // bars in a strip

/** Draw one small bar per step. Long solutions have one bar per group of steps, with its lowest value. */
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

/** Return the lowest value and label of each of `MAX_BARS` groups of neighbouring steps. */
function lowest({ vals, hard }) {
  const least = (all) => {
    const given = all.filter((one) => one !== null);
    return given.length ? given.reduce((one, other) => (one < other ? one : other)) : null;
  };
  const at = (group) => Math.floor((group * vals.length) / MAX_BARS);
  const groups = Array.from({ length: MAX_BARS }, (_, group) => [at(group), at(group + 1)]);
  return { vals: groups.map(([a, b]) => least(vals.slice(a, b))), hard: groups.map(([a, b]) => least(hard.slice(a, b))) };
}

/** Draw a value as a bar, with its interval and with words on it. */
export function bar(value, low, high, words = "") {
  const node = h("span", { class: value === null ? "value-bar unknown" : "value-bar", "aria-hidden": words ? null : "true" },
    words ? h("span", { class: "tally" }, words) : null);
  if (value !== null) {
    node.prepend(h("span", { class: "fill" }));
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

/** Return whether a gold answer consists of unit tests, and the number of the tests in words. */
export const isTests = (gold) => /^\s*[{[]\s*"|\bassert\b/.test(gold);
export function testWords(gold) {
  try {
    return plural(JSON.parse(gold).inputs.length, "test");
  } catch {
    return plural(gold.split(/\bassert\b/).length - 1, "test").replace(/^0 /, "");
  }
}

const SOURCES = {
  fixed: "a fixed number of rollouts; a step is sound if at least one rollout is right",
  first_success: "rollouts until one is right, or until their maximum number; a step is sound if one rollout is right",
  posterior: "the posterior of the first error; steps before the most probable first error are sound. Values use all rollouts of the solution, not only those of the step",
  implied: "no rollouts; the label follows from other steps or from the outcome",
  outcome: "the outcome of the solution, which labels the last step",
  judge: "a judge, whose scores are the expected values",
  given: "an imported label",
  none: "no label",
};
export const sourceText = (source) => SOURCES[source] ?? source;

/** Return the facts on a consensus: whether the solution is kept, and the opinion of each source. */
export function opinionFacts({ consensus }) {
  if (consensus === null) return [];
  return [
    [`Consensus, ${visible(consensus.rule)}`, [chip(consensus.kept ? "" : "differs", consensus.word)]],
    ...consensus.opinions.map(({ source, words }) => [visible(source), [words]]),
  ];
}

/** Draw the remarks on a step's marked places as a list; null if there are none. */
export function reasons(places) {
  if (!places.length) return null;
  return h("ul", { class: "reasons" }, places.map(({ words }) => h("li", {}, visible(words))));
}
