// Texts of any length. They are laid out in pieces, as these come into view: one line of a megabyte would hold the
// browser up for seconds.

import { h } from "./dom.js";
import { count } from "./format.js";
import { actions, button } from "./parts.js";

const PIECE = 20_000; // characters

/** A text with all that it holds, from the first piece on. */
export function wholeText(text, label = "Text") {
  if (!text) return h("p", { class: "muted" }, "It holds no text.");
  const [first, ...others] = pieces(text).map((piece) => h("span", { class: "piece" }, piece));
  const attributes = { class: "said whole", dir: "auto", tabindex: "0", role: "region", "aria-label": label };
  const block = h("div", attributes, first);
  if (!others.length) return block;
  const left = count(text.length - first.textContent.length);
  const showAll = () => {
    block.append(...others);
    more.remove();
    block.focus();
  };
  const more = actions(button(`Show the other ${left} characters`, showAll));
  return h("div", {}, block, more);
}

// Cut behind a line where there is one, and never within a character.
function pieces(text) {
  const all = [];
  for (let start = 0; start < text.length; ) {
    let end = Math.min(text.length, start + PIECE);
    const line = text.lastIndexOf("\n", end - 1) + 1;
    if (end < text.length && line > start) end = line;
    else if (end < text.length && /[\uDC00-\uDFFF]/.test(text[end])) end += 1;
    all.push(text.slice(start, end));
    start = end;
  }
  return all;
}
