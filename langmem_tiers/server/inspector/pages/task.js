// A recorded task of an agent, with its cycles and the loops among them.

import { encodeSegment, get } from "../api.js";
import { originalButton } from "../dialogs.js";
import { h, isolatedName, textBlock } from "../dom.js";
import { count, time } from "../format.js";
import { PagedList } from "../list.js";
import { emptyNotice } from "../notices.js";
import { href } from "../routes.js";
import { stateLabel } from "../states.js";
import { breadcrumbs } from "../widgets.js";

export const title = (parameters) => `Task ${parameters.get("t") ?? ""}`;

export async function render({ content, parameters, namespace, signal, reload }) {
  const task = parameters.get("t") ?? "";
  const list = new PagedList({
    load: (cursor) => get(`tasks/${encodeSegment(task)}/cycles`, { namespace, cursor, limit: 100 }, signal),
    render: (cycle) => cycleRow(cycle, originalButton(namespace, { id: cycle.id, session: task }, reload)),
    empty: () => emptyNotice("No cycles in this task."),
    label: "Cycles",
    signal,
  });
  content.replaceChildren(breadcrumbs("Tasks", href("tasks", { ns: namespace }), task), list.element);
  await list.start();
}

function cycleRow(cycle, original) {
  const hasParameters = cycle.parameters && cycle.parameters !== "{}";
  return h(
    "article",
    { class: `message cycle${cycle.loop ? " is-loop" : ""}`, role: "listitem", tabindex: "-1" },
    h("header", {}, h("span", { class: "meta" }, metadata(cycle)), original),
    cycle.thought ? textBlock(cycle.thought, { class: "text-block short muted" }) : null,
    hasParameters ? textBlock(cycle.parameters, { class: "text-block code" }) : null,
    cycle.result ? textBlock(cycle.result, { class: "text-block short" }) : null,
    cycle.loop ? h("p", { class: "reason warning", dir: "auto" }, cycle.loop) : null,
  );
}

function metadata(cycle) {
  return [
    h("span", { class: "muted number" }, `#${count(cycle.number)}`),
    h("strong", { class: "row-title" }, isolatedName(cycle.action)),
    stateLabel(cycle.success ? "ok" : "failed"),
    cycle.loop ? stateLabel("loop") : null,
    h("time", { class: "muted", datetime: cycle.time }, time(cycle.time)),
  ];
}
