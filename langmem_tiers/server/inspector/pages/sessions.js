// Sessions of a namespace.

import { get } from "../api.js";
import { openForgetDialog } from "../dialogs.js";
import { h, isolatedName } from "../dom.js";
import { plural, time } from "../format.js";
import { PagedList } from "../list.js";
import { emptyNotice } from "../notices.js";
import { href } from "../routes.js";
import { button } from "../widgets.js";

export const title = () => "Sessions";

export async function render({ content, namespace, signal, reload }) {
  const list = new PagedList({
    load: (cursor) => get("sessions", { namespace, cursor, limit: 100 }, signal),
    render: (item) => sessionRow(item, namespace, reload),
    empty: () => emptyNotice("No sessions in ", isolatedName(namespace), "."),
    label: "Sessions",
    signal,
  });
  content.replaceChildren(list.element);
  await list.start();
}

function sessionRow(item, namespace, reload) {
  const forget = () => openForgetDialog(namespace, { session: item.session }, "this session", reload);
  const address = href("session", { ns: namespace, s: item.session });
  return h(
    "article",
    { class: "list-row", role: "listitem", tabindex: "-1" },
    h(
      "span",
      { class: "meta" },
      h("a", { class: "name", href: address }, isolatedName(item.session)),
      h("span", { class: "muted number" }, plural(item.messages, "message")),
      h("span", { class: "muted number" }, plural(item.tokens, "token")),
      h("time", { class: "muted", datetime: item.updated_at }, time(item.updated_at)),
    ),
    button("Forget …", forget, { class: "quiet danger", "aria-label": `Forget session ${item.session}` }),
  );
}
