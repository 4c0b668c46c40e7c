// Marks of a state: a sign and a word, never a colour alone.

import { h } from "./dom.js";
import { words } from "./format.js";

const SIGNS = {
  full: "●",
  compressed: "◐",
  recalled: "↩",
  dropped: "○",
  archived: "○",
  knowledge: "◆",
  system: "■",
  summary: "≡",
  loop: "↻",
  ok: "✓",
  failed: "✕",
};

/** What becomes of a message in a context. */
export const STATES = {
  full: "as it was said",
  compressed: "in fewer words",
  recalled: "brought back for the question",
  dropped: "not in this context",
};

/** A sign with its word. */
export function stateMark(state, word = words(state)) {
  const sign = h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[state] ?? "·");
  return h("span", { class: `mark is-${state}` }, sign, word);
}
