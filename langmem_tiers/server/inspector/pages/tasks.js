// Recorded tasks of agents.

import { get } from "../api.js";
import { h, isolatedName } from "../dom.js";
import { plural, time } from "../format.js";
import { PagedList } from "../list.js";
import { emptyNotice } from "../notices.js";
import { href } from "../routes.js";

export const title = () => "Tasks";

export async function render({ content, namespace, signal }) {
  const list = new PagedList({
    load: (cursor) => get("tasks", { namespace, cursor, limit: 100 }, signal),
    render: (item) => taskRow(item, namespace),
    empty: () => emptyNotice("No tasks in ", isolatedName(namespace), "."),
    label: "Tasks",
    signal,
  });
  content.replaceChildren(list.element);
  await list.start();
}

function taskRow(item, namespace) {
  const address = href("task", { ns: namespace, t: item.task });
  return h(
    "article",
    { class: "list-row", role: "listitem", tabindex: "-1" },
    h(
      "span",
      { class: "meta" },
      h("a", { class: "name", href: address }, isolatedName(item.task)),
      h("span", { class: "muted number" }, plural(item.cycles, "cycle")),
      h("time", { class: "muted", datetime: item.updated_at }, time(item.updated_at)),
    ),
  );
}
