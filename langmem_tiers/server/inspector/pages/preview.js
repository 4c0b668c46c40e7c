// What would the model see? A context for a question and a budget, with reasons for in and out.

import { get, post } from "../api.js";
import { bar } from "../charts.js";
import { h } from "../dom.js";
import { count, percent, plural, words } from "../format.js";
import { PagedList } from "../list.js";
import { messageRow } from "../messages.js";
import { fill, nothing } from "../notices.js";
import { askForm, completions, field, panel, plainPanel, table, wideField } from "../parts.js";
import { go } from "../routes.js";

const SHOWN = 100; // of what is in or out, at once
const KEPT = new Set(["full", "compressed"]); // the others are put together for the context
const COLUMNS = [
  { name: "Section" },
  { name: "Tokens", class: "number" },
  { name: "At most", class: "number" },
  { name: "Use", class: "wide" },
];
const HINT =
  "Choose a session, a question and a budget: this shows the prompt that an agent would get, and what stays out of it.";

export const title = () => "What would the model see?";

export async function render({ content, parameters, namespace, signal, reload }) {
  const sessions = await get("sessions", { namespace, limit: 200 }, signal);
  const asked = {
    session: parameters.get("s") ?? sessions.items[0]?.session ?? "",
    question: parameters.get("q"),
    budget: Number(parameters.get("b") ?? 4000),
  };
  const results = h("div", { class: "results", "aria-live": "polite" });
  content.replaceChildren(form(namespace, asked, sessions.items), results);
  if (!parameters.has("s")) {
    results.replaceChildren(nothing(HINT));
    return;
  }
  const at = { namespace, session: asked.session, signal, reload };
  await fill(results, async () => parts(await post("context", { namespace, ...asked }, signal), at), reload);
}

function form(namespace, { session, question, budget }, sessions) {
  const q = h("input", { type: "search", value: question, dir: "auto" });
  const s = h("input", { value: session, required: true, list: "sessions-known", autocomplete: "off", dir: "auto" });
  const b = h("input", { type: "number", min: "1", value: budget, required: true, inputmode: "numeric" });
  const send = () => go("preview", { ns: namespace, s: s.value, q: q.value, b: b.value });
  const names = completions("sessions-known", sessions.map((one) => one.session));
  return askForm("Show", send, [wideField("Question", q), field("Session", s), names, field("Budget in tokens", b)]);
}

function parts(context, at) {
  const { messages, left_out: out, left_out_count: total, problems } = context;
  const listed = out.length < total ? `, ${count(out.length)} of them listed` : "";
  return [
    ...problems.map((text) => h("p", { class: "notice bad", dir: "auto" }, text)),
    usage(context),
    h(
      "div",
      { class: "columns" },
      plainPanel(`In: ${plural(messages.length, "message")}`, rows(messages, "What the model sees", at)),
      plainPanel(`Out: ${plural(total, "memory", "memories")}${listed}`, rows(out, "What stays out", at)),
    ),
  ];
}

function usage({ budget, used, sections, warnings }) {
  const row = ({ name, tokens, limit }) => [words(name), count(tokens), count(limit), bar(tokens / limit)];
  const taken = `${count(used)} of ${count(budget)} tokens`;
  return panel(
    "Budget",
    h("p", { class: "usage" }, h("strong", { class: "number" }, taken), ` (${percent(used / budget)})`),
    bar(used / budget, { class: "bar thick" }),
    warnings.length ? h("p", { class: "reason", dir: "auto" }, `${warnings.join(". ")}.`) : null,
    table(COLUMNS, sections.map(row)),
  );
}

function rows(all, label, { namespace, session, signal, reload }) {
  const render = (message) => {
    const state = message.origin;
    const isOut = message.cut !== undefined; // what is told of it is the beginning
    const how = { hasOriginal: isOut || KEPT.has(state), opens: !isOut, onGone: reload };
    const of = message.role ? (message.session ?? session) : null; // other memories have no role
    return messageRow({ namespace, session: of, message, state, ...how });
  };
  const load = async (start) => {
    const end = (start ?? 0) + SHOWN;
    return { items: all.slice(start ?? 0, end), next: end < all.length ? end : null };
  };
  const list = new PagedList({ load, render, empty: () => nothing("Nothing."), label, signal });
  list.start();
  return list.element;
}
