// Labels of states: an icon and a word, so that the color is never the only difference.

import { h } from "./dom.js";
import { words } from "./format.js";

const ICONS = {
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

/** States of a message in a context, with their descriptions. */
export const MESSAGE_STATES = {
  full: "complete text",
  compressed: "shortened",
  recalled: "retrieved for the question",
  dropped: "not in this context",
};

/** The label of a state. */
export function stateLabel(state) {
  const icon = h("span", { class: "icon", "aria-hidden": "true" }, ICONS[state] ?? "·");
  return h("span", { class: `state is-${state}` }, icon, words(state));
}
