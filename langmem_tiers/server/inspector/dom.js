// Builds elements. What was said in a memory only ever becomes text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";
const LONG = 100; // characters of a name, which then shows whole under the pointer

/** An element: `on...` attributes are listeners, `true` is a bare attribute, null and false are left out. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of a drawing. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if ((value ?? false) === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => (child ?? false) !== false));
  return element;
}

/** A name that somebody chose, kept apart from the text around it whichever way it is written; a long one may be cut. */
export function named(text) {
  const name = String(text);
  return h("bdi", { title: name.length > LONG && name }, name);
}

/** What somebody said, as a block of its own direction. */
export function said(text, attributes) {
  return h("p", { class: "said", dir: "auto", ...attributes }, String(text ?? ""));
}

/** Tell a person who does not see the page change. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

let last = 0;

/** An id that no other element of the page has. */
export function freshId(prefix) {
  last += 1;
  return `${prefix}-${last}`;
}
