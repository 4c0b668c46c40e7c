// Preview of the context for a question and a budget, with the reason for each memory that is included or left out.

import { get, post } from "../api.js";
import { bar } from "../charts.js";
import { h } from "../dom.js";
import { count, percent, plural, words } from "../format.js";
import { PagedList } from "../list.js";
import { messageRow } from "../messages.js";
import { emptyNotice, loadInto } from "../notices.js";
import { navigate } from "../routes.js";
import { field, panel, plainPanel, queryForm, suggestions, table, wideField } from "../widgets.js";

const PAGE_SIZE = 100; // rows that are rendered at once
const STORED_STATES = new Set(["full", "compressed"]); // messages in other states were created for the context
const SECTIONS = { memories: "recalled memories", known: "knowledge", frame: "message frame" };
const COLUMNS = [
  { name: "Section" },
  { name: "Tokens", class: "number" },
  { name: "Limit", class: "number" },
  { name: "Usage", class: "wide" },
];
const HINT = "Choose a session, a question and a budget to see the prompt for the agent and what is left out of it.";

export const title = () => "What would the model see?";

export async function render({ content, parameters, namespace, signal, reload }) {
  const sessions = await get("sessions", { namespace, limit: 200 }, signal);
  const request = {
    session: parameters.get("s") ?? sessions.items[0]?.session ?? "",
    question: parameters.get("q"),
    budget: Number(parameters.get("b") ?? 4000),
  };
  const results = h("div", { class: "results", "aria-live": "polite" });
  content.replaceChildren(requestForm(namespace, request, sessions.items), results);
  if (!parameters.has("s")) {
    results.replaceChildren(emptyNotice(HINT));
    return;
  }
  const options = { namespace, session: request.session, signal, reload };
  const load = async () => contextContent(await post("context", { namespace, ...request }, signal), options);
  await loadInto(results, load, reload);
}

function requestForm(namespace, { session, question, budget }, sessions) {
  const questionInput = h("input", { type: "search", value: question, dir: "auto" });
  const attributes = { required: true, list: "sessions", autocomplete: "off", dir: "auto" };
  const sessionInput = h("input", { value: session, ...attributes });
  const budgetInput = h("input", { type: "number", min: "1", value: budget, required: true, inputmode: "numeric" });
  const submit = () =>
    navigate("preview", { ns: namespace, s: sessionInput.value, q: questionInput.value, b: budgetInput.value });
  const fields = [
    wideField("Question", questionInput),
    field("Session", sessionInput),
    suggestions("sessions", sessions.map((item) => item.session)),
    field("Budget in tokens", budgetInput),
  ];
  return queryForm("Show", submit, fields);
}

function contextContent(context, options) {
  const { messages, left_out: leftOut, left_out_count: total, problems } = context;
  const listed = leftOut.length < total ? `, ${count(leftOut.length)} listed` : "";
  const leftOutHeading = `Left out: ${plural(total, "memory", "memories")}${listed}`;
  return [
    ...problems.map((text) => h("p", { class: "notice error", dir: "auto" }, text)),
    budgetPanel(context),
    h(
      "div",
      { class: "columns" },
      plainPanel(`Included: ${plural(messages.length, "message")}`, memoryList(messages, "Included", options)),
      plainPanel(leftOutHeading, memoryList(leftOut, "Left out", options)),
    ),
  ];
}

function budgetPanel({ budget, used, sections, warnings }) {
  const row = ({ name, tokens, limit }) => [SECTIONS[name] ?? words(name), count(tokens), count(limit), bar(tokens / limit)];
  const usage = `${count(used)} of ${count(budget)} tokens`;
  return panel(
    "Budget",
    h("p", { class: "usage" }, h("strong", { class: "number" }, usage), ` (${percent(used / budget)})`),
    bar(used / budget, { class: "bar thick" }),
    warnings.length ? h("p", { class: "reason", dir: "auto" }, `${warnings.join(". ")}.`) : null,
    table(COLUMNS, sections.map(row)),
  );
}

function memoryList(items, label, { namespace, session, signal, reload }) {
  const render = (message) => {
    const state = message.origin;
    const isLeftOut = message.cut !== undefined; // only these items can be truncated
    const hasOriginal = isLeftOut || STORED_STATES.has(state);
    // Only messages have a role; other memories do not belong to a session.
    const messageSession = message.role ? (message.session ?? session) : null;
    const actions = { hasOriginal, isExpandable: !isLeftOut, onForgotten: reload };
    return messageRow({ namespace, session: messageSession, message, state, ...actions });
  };
  const load = async (start) => {
    const end = (start ?? 0) + PAGE_SIZE;
    return { items: items.slice(start ?? 0, end), next: end < items.length ? end : null };
  };
  const list = new PagedList({ load, render, empty: () => emptyNotice("None."), label, signal });
  list.start();
  return list.element;
}
