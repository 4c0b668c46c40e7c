// What is known across sessions, and how surely.

import { get } from "../api.js";
import { bar } from "../charts.js";
import { forgetDialog, originalButton } from "../dialogs.js";
import { h, named, said } from "../dom.js";
import { percent, plural, time, words } from "../format.js";
import { PagedList } from "../list.js";
import { nothing } from "../notices.js";
import { askForm, button, completions, field, wideField } from "../parts.js";
import { go } from "../routes.js";

const CATEGORIES = ["domain", "execution_pattern", "user_preference", "website_knowledge", "error_pattern", "note"];

export const title = () => "Knowledge";

export async function render({ content, parameters, namespace, signal, reload }) {
  const asked = { query: parameters.get("q") ?? "", category: parameters.get("category") ?? "" };
  const why = asked.query || asked.category ? "Nothing that is known fits that." : "Nothing is known yet.";
  const list = new PagedList({
    load: (cursor) => get("knowledge", { namespace, ...asked, cursor, limit: 100 }, signal),
    render: (one) => row(one, namespace, reload),
    empty: () => nothing(why),
    label: "Known things",
    signal,
  });
  content.replaceChildren(form(namespace, asked), list.element);
  await list.start();
}

function form(namespace, { query, category }) {
  const q = h("input", { type: "search", value: query, dir: "auto" });
  const c = h("input", { value: category, list: "categories", placeholder: "all", autocomplete: "off", dir: "auto" });
  const send = () => go("knowledge", { ns: namespace, q: q.value, category: c.value });
  const fields = [wideField("About", q), field("Category", c), completions("categories", CATEGORIES)];
  return h("search", {}, askForm("Show", send, fields));
}

function row(one, namespace, reload) {
  const what = { knowledge: { category: one.category, key: one.key } };
  const forget = () => forgetDialog(namespace, what, "this knowledge", reload);
  const forgetButton = button("Forget …", forget, { class: "quiet danger", "aria-label": `Forget ${one.key}` });
  const original = originalButton(namespace, { id: one.id }, reload);
  return h(
    "article",
    { class: "message", role: "listitem", tabindex: "-1" },
    h("header", {}, h("span", { class: "meta" }, about(one)), original, forgetButton),
    said(one.cut ? `${one.value} …` : one.value, { class: "said short" }),
    h(
      "p",
      { class: "sure" },
      h("span", { class: "muted" }, "Confidence"),
      bar(one.confidence),
      h("span", { class: "number" }, percent(one.confidence)),
    ),
  );
}

function about(one) {
  return [
    h("span", { class: "tag" }, named(words(one.category))),
    h("strong", { class: "who" }, named(one.key)),
    h("time", { class: "muted", datetime: one.updated_at }, time(one.updated_at)),
    h("span", { class: "muted" }, `used ${plural(one.uses, "time")}`),
    one.source ? h("span", { class: "muted" }, "from ", named(one.source)) : null,
  ];
}
