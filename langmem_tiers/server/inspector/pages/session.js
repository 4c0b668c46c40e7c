// Timeline of a session: its messages, with the state of each in the context for a question and a budget.

import { encodeSegment, get } from "../api.js";
import { h, isolatedName } from "../dom.js";
import { PagedList } from "../list.js";
import { messageRow } from "../messages.js";
import { emptyNotice } from "../notices.js";
import { href, navigate } from "../routes.js";
import { MESSAGE_STATES, stateLabel } from "../states.js";
import { breadcrumbs, field, plainPanel, queryForm, wideField } from "../widgets.js";

export const title = (parameters) => parameters.get("s") ?? "Session";

export async function render({ content, parameters, namespace, signal, reload }) {
  const session = parameters.get("s") ?? "";
  const order = parameters.get("o") === "newest" ? "newest" : "oldest";
  const request = { question: parameters.get("q"), budget: parameters.get("b"), order };
  const path = `sessions/${encodeSegment(session)}/timeline`;
  const list = new PagedList({
    load: (cursor) => get(path, { namespace, ...request, cursor, limit: 100 }, signal),
    render: (message) => messageRow({ namespace, session, message, state: message.state, onForgotten: reload }),
    empty: () => emptyNotice("No messages in ", isolatedName(session), "."),
    label: `Messages, ${order} first`,
    signal,
  });
  content.replaceChildren(
    breadcrumbs("Sessions", href("sessions", { ns: namespace }), session),
    requestForm(namespace, session, request),
    legend(),
    plainPanel(`Messages, ${order} first`, list.element),
  );
  await list.start();
}

function requestForm(namespace, session, { question, budget, order }) {
  const attributes = { placeholder: "for example: what did we decide?", dir: "auto" };
  const questionInput = h("input", { type: "search", value: question, ...attributes });
  const number = { type: "number", min: "1", inputmode: "numeric", placeholder: "default" };
  const budgetInput = h("input", { value: budget, ...number });
  const common = { ns: namespace, s: session };
  const submit = () => navigate("session", { ...common, q: questionInput.value, b: budgetInput.value, o: order });
  const otherOrder = order === "oldest" ? "newest" : "oldest";
  const links = [
    h("a", { class: "button", href: href("preview", { ...common, q: question, b: budget }) }, "Preview"),
    h(
      "a",
      { class: "button", href: href("session", { ...common, q: question, b: budget, o: otherOrder }) },
      otherOrder === "newest" ? "Newest first" : "Oldest first",
    ),
  ];
  const fields = [wideField("Question", questionInput), field("Budget in tokens", budgetInput)];
  return queryForm("Show", submit, fields, links);
}

function legend() {
  const item = ([state, description]) => h("li", {}, stateLabel(state), h("span", { class: "muted" }, description));
  return h("ul", { class: "legend", "aria-label": "States" }, Object.entries(MESSAGE_STATES).map(item));
}
