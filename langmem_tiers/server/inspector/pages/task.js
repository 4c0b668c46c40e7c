// One run of an agent, cycle by cycle, with loops marked.

import { get, part } from "../api.js";
import { originalButton } from "../dialogs.js";
import { h, named, said } from "../dom.js";
import { count, time } from "../format.js";
import { PagedList } from "../list.js";
import { stateMark } from "../marks.js";
import { nothing } from "../notices.js";
import { crumbs } from "../parts.js";
import { href } from "../routes.js";

export const title = (parameters) => `Task ${parameters.get("t") ?? ""}`;

export async function render({ content, parameters, namespace, signal, reload }) {
  const task = parameters.get("t") ?? "";
  const list = new PagedList({
    load: (cursor) => get(`tasks/${part(task)}/cycles`, { namespace, cursor, limit: 100 }, signal),
    render: (one) => row(one, originalButton(namespace, { id: one.id, session: task }, reload)),
    empty: () => nothing("This run has no cycle."),
    label: "Cycles",
    signal,
  });
  content.replaceChildren(crumbs("Tasks", href("tasks", { ns: namespace }), task), list.element);
  await list.start();
}

function row(one, original) {
  return h(
    "article",
    { class: `message cycle${one.loop ? " is-loop" : ""}`, role: "listitem", tabindex: "-1" },
    h("header", {}, h("span", { class: "meta" }, about(one)), original),
    one.thought ? said(one.thought, { class: "said short muted" }) : null,
    one.parameters && one.parameters !== "{}" ? said(one.parameters, { class: "said code" }) : null,
    one.result ? said(one.result, { class: "said short" }) : null,
    one.loop ? h("p", { class: "reason warn", dir: "auto" }, one.loop) : null,
  );
}

function about(one) {
  return [
    h("span", { class: "muted number" }, `#${count(one.number)}`),
    h("strong", { class: "who" }, named(one.action)),
    stateMark(one.success ? "ok" : "failed"),
    one.loop ? stateMark("loop") : null,
    h("time", { class: "muted", datetime: one.time }, time(one.time)),
  ];
}
