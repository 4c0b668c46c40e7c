// Creates elements. Content of the memory is only inserted as text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";
const LONG_NAME = 100; // characters; longer names also get a tooltip, because they may be cut off

/** Create an HTML element: `on...` attributes are listeners, `true` is a bare attribute, null and false are omitted. */
export function h(tag, attributes, ...children) {
  return populate(document.createElement(tag), attributes, children);
}

/** Create an SVG element. */
export function s(tag, attributes, ...children) {
  return populate(document.createElementNS(SVG, tag), attributes, children);
}

function populate(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if ((value ?? false) === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => (child ?? false) !== false));
  return element;
}

/** A user-defined name. It is isolated, so its writing direction does not affect the surrounding text. */
export function isolatedName(text) {
  const name = String(text);
  return h("bdi", { title: name.length > LONG_NAME && name }, name);
}

/** A paragraph of stored text, with its own writing direction. */
export function textBlock(text, attributes) {
  return h("p", { class: "text-block", dir: "auto", ...attributes }, String(text ?? ""));
}

/** Announce a change of the page to screen readers. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

let idCount = 0;

/** Return an id that is unique in the page. */
export function uniqueId(prefix) {
  idCount += 1;
  return `${prefix}-${idCount}`;
}
