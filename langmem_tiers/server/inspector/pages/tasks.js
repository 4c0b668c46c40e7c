// Recorded runs of agents.

import { get } from "../api.js";
import { h, named } from "../dom.js";
import { plural, time } from "../format.js";
import { PagedList } from "../list.js";
import { nothing } from "../notices.js";
import { href } from "../routes.js";

export const title = () => "Tasks";

export async function render({ content, namespace, signal }) {
  const list = new PagedList({
    load: (cursor) => get("tasks", { namespace, cursor, limit: 100 }, signal),
    render: (one) => row(one, namespace),
    empty: () => nothing("No run of an agent is recorded in ", named(namespace), "."),
    label: "Tasks",
    signal,
  });
  content.replaceChildren(list.element);
  await list.start();
}

function row(one, namespace) {
  return h(
    "article",
    { class: "line", role: "listitem", tabindex: "-1" },
    h(
      "span",
      { class: "meta" },
      h("a", { class: "name", href: href("task", { ns: namespace, t: one.task }) }, named(one.task)),
      h("span", { class: "muted number" }, plural(one.cycles, "cycle")),
      h("time", { class: "muted", datetime: one.updated_at }, time(one.updated_at)),
    ),
  );
}
