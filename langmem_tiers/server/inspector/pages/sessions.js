// All sessions of a namespace.

import { get } from "../api.js";
import { forgetDialog } from "../dialogs.js";
import { h, named } from "../dom.js";
import { count, plural, time } from "../format.js";
import { PagedList } from "../list.js";
import { nothing } from "../notices.js";
import { button } from "../parts.js";
import { href } from "../routes.js";

export const title = () => "Sessions";

export async function render({ content, namespace, signal, reload }) {
  const list = new PagedList({
    load: (cursor) => get("sessions", { namespace, cursor, limit: 100 }, signal),
    render: (one) => row(one, namespace, reload),
    empty: () => nothing("There is no session in ", named(namespace), "."),
    label: "Sessions",
    signal,
  });
  content.replaceChildren(list.element);
  await list.start();
}

function row(one, namespace, reload) {
  const forget = () => forgetDialog(namespace, { session: one.session }, "this session", reload);
  return h(
    "article",
    { class: "line", role: "listitem", tabindex: "-1" },
    h(
      "span",
      { class: "meta" },
      h("a", { class: "name", href: href("session", { ns: namespace, s: one.session }) }, named(one.session)),
      h("span", { class: "muted number" }, plural(one.messages, "message")),
      h("span", { class: "muted number" }, `${count(one.tokens)} tokens`),
      h("time", { class: "muted", datetime: one.updated_at }, time(one.updated_at)),
    ),
    button("Forget …", forget, { class: "quiet danger", "aria-label": `Forget the session ${one.session}` }),
  );
}
