// One message as a row: who, when, how much, what, and its original one click away.

import { originalButton } from "./dialogs.js";
import { h, named, said } from "./dom.js";
import { count, time, words } from "./format.js";
import { stateMark } from "./marks.js";
import { button } from "./parts.js";
import { wholeText } from "./texts.js";

const SHOWN = 2_000; // characters of a row

/**
 * Args:
 *   session: the one that the message is of; null for any other memory.
 *   message: of the server.
 *   state: its mark, if it has one.
 *   extra: elements below the text.
 *   hasOriginal: whether it is kept as it is; what was put together for a context is not.
 *   opens: whether all of the text can be shown in its place.
 *   onGone: called when it was forgotten.
 */
export function messageRow({ namespace, session, message, state, extra, link, hasOriginal = true, opens, onGone }) {
  const text = h("div", { class: "text" }, shortText(message));
  return h(
    "article",
    { class: `message${state ? ` is-${state}` : ""}`, role: "listitem", tabindex: "-1" },
    h(
      "header",
      {},
      h("span", { class: "meta" }, about(message, state, link)),
      opens && [message.text, ...callsOf(message)].some(isLong) ? opener(message, text) : null,
      hasOriginal ? originalButton(namespace, { id: message.id, session }, onGone) : null,
    ),
    text,
    message.reason ? h("p", { class: "reason", dir: "auto" }, message.reason) : null,
    extra,
  );
}

function about(message, state, link) {
  const who = [message.role ?? words(message.kind ?? "memory"), message.name].filter(Boolean).map(named);
  return [
    state ? stateMark(state) : null,
    h("span", { class: "who" }, who.length > 1 ? [who[0], " · ", who[1]] : who),
    link,
    message.time ? h("time", { datetime: message.time, class: "muted" }, time(message.time)) : null,
    Number.isFinite(message.tokens) ? h("span", { class: "muted number" }, `${count(message.tokens)} tokens`) : null,
    Number.isFinite(message.position) ? h("span", { class: "muted number" }, `#${count(message.position)}`) : null,
  ];
}

function shortText({ text, cut, calls = [] }) {
  const told = cut || text.length > SHOWN ? `${text.slice(0, SHOWN)} …` : text;
  if (!text && !calls.length) return [h("p", { class: "muted" }, "No text.")];
  return [text ? said(told, { class: "said short" }) : null, ...calls.map(shortCall)];
}

function shortCall(call) {
  const isLong = call.cut || call.arguments.length > SHOWN;
  const told = isLong ? `${call.arguments.slice(0, SHOWN)} …` : call.arguments;
  return said(`${call.name} ${told}`, { class: "said short code" });
}

const isLong = (text) => text.length > 240 || text.split("\n", 6).length > 5;

const callsOf = ({ calls = [] }) => calls.map((call) => `${call.name} ${call.arguments}`);

function whole(message) {
  const calls = callsOf(message).map((told) => wholeText(told, "Call of a tool"));
  return [message.text ? wholeText(message.text) : null, ...calls];
}

function opener(message, place) {
  let isOpen = false;
  const turn = ({ target }) => {
    isOpen = !isOpen;
    place.replaceChildren(...(isOpen ? whole(message) : shortText(message)).filter(Boolean));
    target.setAttribute("aria-expanded", String(isOpen));
    target.textContent = isOpen ? "Show less" : "Show all";
  };
  return button("Show all", turn, { class: "quiet", "aria-expanded": "false" });
}
