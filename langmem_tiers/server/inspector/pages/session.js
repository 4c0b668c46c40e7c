// A session as a timeline: what a context for a question and a budget would hold of each message.

import { get, part } from "../api.js";
import { h, named } from "../dom.js";
import { PagedList } from "../list.js";
import { STATES, stateMark } from "../marks.js";
import { messageRow } from "../messages.js";
import { nothing } from "../notices.js";
import { askForm, crumbs, field, plainPanel, wideField } from "../parts.js";
import { go, href } from "../routes.js";

export const title = (parameters) => parameters.get("s") ?? "Session";

export async function render({ content, parameters, namespace, signal, reload }) {
  const session = parameters.get("s") ?? "";
  const order = parameters.get("o") === "newest" ? "newest" : "oldest";
  const asked = { question: parameters.get("q"), budget: parameters.get("b"), order };
  const path = `sessions/${part(session)}/timeline`;
  const list = new PagedList({
    load: (cursor) => get(path, { namespace, ...asked, cursor, limit: 100 }, signal),
    render: (message) => messageRow({ namespace, session, message, state: message.state, onGone: reload }),
    empty: () => nothing("There is no message in ", named(session), "."),
    label: `Messages, ${order} first`,
    signal,
  });
  content.replaceChildren(
    crumbs("Sessions", href("sessions", { ns: namespace }), session),
    form(namespace, session, asked),
    legend(),
    plainPanel(`Messages, ${order} first`, list.element),
  );
  await list.start();
}

function form(namespace, session, { question, budget, order }) {
  const q = h("input", { type: "search", value: question, placeholder: "e.g. what did we decide?", dir: "auto" });
  const b = h("input", { type: "number", min: "1", value: budget, inputmode: "numeric", placeholder: "default" });
  const at = { ns: namespace, s: session };
  const send = () => go("session", { ...at, q: q.value, b: b.value, o: order });
  const turned = order === "oldest" ? "newest" : "oldest";
  const links = [
    h("a", { class: "button", href: href("preview", { ...at, q: question, b: budget }) }, "Preview"),
    h(
      "a",
      { class: "button", href: href("session", { ...at, q: question, b: budget, o: turned }) },
      turned === "newest" ? "Newest first" : "Oldest first",
    ),
  ];
  return askForm("Show", send, [wideField("For the question", q), field("Budget in tokens", b)], links);
}

function legend() {
  const key = ([name, meaning]) => h("li", {}, stateMark(name), h("span", { class: "muted" }, meaning));
  return h("ul", { class: "legend", "aria-label": "States" }, Object.entries(STATES).map(key));
}
