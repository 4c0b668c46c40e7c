// A message as a row of a list: metadata, text and a button that shows the original.

import { originalButton } from "./dialogs.js";
import { h, isolatedName, textBlock } from "./dom.js";
import { count, time, words } from "./format.js";
import { fullText } from "./long_text.js";
import { stateLabel } from "./states.js";
import { button } from "./widgets.js";

const MAX_CHARACTERS = 2_000; // of a text in a row

/**
 * Create the row of a message.
 *
 * Args:
 *   session: session of the message; null for any other memory.
 *   message: message as the server returned it.
 *   state: state of the message, if any.
 *   extra: elements below the text.
 *   link: element after the role, if any.
 *   hasOriginal: false for messages that were created for a context and are not stored.
 *   isExpandable: true if the complete text was loaded and can be shown in the row.
 *   onForgotten: called after the message was erased.
 */
export function messageRow(options) {
  const { namespace, session, message, state, extra, link, hasOriginal = true, isExpandable, onForgotten } = options;
  const text = h("div", { class: "text" }, shortText(message));
  return h(
    "article",
    { class: `message${state ? ` is-${state}` : ""}`, role: "listitem", tabindex: "-1" },
    h(
      "header",
      {},
      h("span", { class: "meta" }, metadata(message, state, link)),
      isExpandable && [message.text, ...callTexts(message)].some(isLong) ? expandButton(message, text) : null,
      hasOriginal ? originalButton(namespace, { id: message.id, session }, onForgotten) : null,
    ),
    text,
    message.reason ? h("p", { class: "reason", dir: "auto" }, message.reason) : null,
    extra,
  );
}

function metadata(message, state, link) {
  const names = [message.role ?? words(message.kind ?? "memory"), message.name].filter(Boolean).map(isolatedName);
  return [
    state ? stateLabel(state) : null,
    h("span", { class: "row-title" }, names.length > 1 ? [names[0], " · ", names[1]] : names),
    link,
    message.time ? h("time", { datetime: message.time, class: "muted" }, time(message.time)) : null,
    Number.isFinite(message.tokens) ? h("span", { class: "muted number" }, `${count(message.tokens)} tokens`) : null,
    Number.isFinite(message.position) ? h("span", { class: "muted number" }, `#${count(message.position)}`) : null,
  ];
}

function shortText({ text, cut, calls = [] }) {
  if (!text && !calls.length) return [h("p", { class: "muted" }, "No text.")];
  return [text ? textBlock(shorten(text, cut), { class: "text-block short" }) : null, ...calls.map(shortCall)];
}

function shortCall(call) {
  return textBlock(`${call.name} ${shorten(call.arguments, call.cut)}`, { class: "text-block short code" });
}

function shorten(text, isCut) {
  return isCut || text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS)} …` : text;
}

const isLong = (text) => text.length > 240 || text.split("\n", 6).length > 5;

const callTexts = ({ calls = [] }) => calls.map((call) => `${call.name} ${call.arguments}`);

function completeText(message) {
  const calls = callTexts(message).map((text) => fullText(text, "Tool call"));
  return [message.text ? fullText(message.text) : null, ...calls];
}

function expandButton(message, container) {
  let isExpanded = false;
  const toggle = ({ target }) => {
    isExpanded = !isExpanded;
    container.replaceChildren(...(isExpanded ? completeText(message) : shortText(message)).filter(Boolean));
    target.setAttribute("aria-expanded", String(isExpanded));
    target.textContent = isExpanded ? "Show less" : "Show all";
  };
  return button("Show all", toggle, { class: "quiet", "aria-expanded": "false" });
}
