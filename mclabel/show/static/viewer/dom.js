// Helpers that make and change HTML elements. Texts are never parsed as markup.

/**
 * Make an element with attributes and children. An attribute whose value is a function becomes a
 * listener for the event of that name.
 */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Set the text of an element if it changes; screen readers would read an unchanged text again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const plural = (count, one, many = `${one}s`) =>
  `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
