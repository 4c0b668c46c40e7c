// Texts of any length. They are split into pieces that the browser only lays out when they become visible: laying out
// one line of a megabyte would block the browser for seconds.

import { h } from "./dom.js";
import { count } from "./format.js";
import { actions, button } from "./widgets.js";

const PIECE_CHARACTERS = 20_000;

/** A complete text: its first piece, with a button that shows the remaining pieces. */
export function fullText(text, label = "Text") {
  if (!text) return h("p", { class: "muted" }, "No text.");
  const [first, ...others] = splitText(text).map((piece) => h("span", { class: "piece" }, piece));
  const attributes = { class: "text-block full", dir: "auto", tabindex: "0", role: "region", "aria-label": label };
  const block = h("div", attributes, first);
  if (!others.length) return block;
  const remaining = count(text.length - first.textContent.length);
  const showAll = () => {
    block.append(...others);
    more.remove();
    block.focus();
  };
  const more = actions(button(`Show the remaining ${remaining} characters`, showAll));
  return h("div", {}, block, more);
}

// Split after a line break if possible, and never inside a surrogate pair.
function splitText(text) {
  const pieces = [];
  for (let start = 0; start < text.length; ) {
    let end = Math.min(text.length, start + PIECE_CHARACTERS);
    const lineStart = text.lastIndexOf("\n", end - 1) + 1;
    if (end < text.length && lineStart > start) end = lineStart;
    else if (end < text.length && /[\uDC00-\uDFFF]/.test(text[end])) end += 1;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
}
