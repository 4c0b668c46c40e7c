// Knowledge of a namespace, with its confidence.

import { get } from "../api.js";
import { bar } from "../charts.js";
import { openForgetDialog, originalButton } from "../dialogs.js";
import { h, isolatedName, textBlock } from "../dom.js";
import { percent, plural, time, words } from "../format.js";
import { PagedList } from "../list.js";
import { emptyNotice } from "../notices.js";
import { navigate } from "../routes.js";
import { button, field, queryForm, suggestions, wideField } from "../widgets.js";

const CATEGORIES = ["domain", "execution_pattern", "user_preference", "website_knowledge", "error_pattern", "note"];

export const title = () => "Knowledge";

export async function render({ content, parameters, namespace, signal, reload }) {
  const filter = { query: parameters.get("q") ?? "", category: parameters.get("category") ?? "" };
  const emptyText = filter.query || filter.category ? "No knowledge matches." : "No knowledge is stored yet.";
  const list = new PagedList({
    load: (cursor) => get("knowledge", { namespace, ...filter, cursor, limit: 100 }, signal),
    render: (item) => knowledgeRow(item, namespace, reload),
    empty: () => emptyNotice(emptyText),
    label: "Knowledge",
    signal,
  });
  content.replaceChildren(filterForm(namespace, filter), list.element);
  await list.start();
}

function filterForm(namespace, { query, category }) {
  const queryInput = h("input", { type: "search", value: query, dir: "auto" });
  const attributes = { list: "categories", placeholder: "all", autocomplete: "off", dir: "auto" };
  const categoryInput = h("input", { value: category, ...attributes });
  const submit = () => navigate("knowledge", { ns: namespace, q: queryInput.value, category: categoryInput.value });
  const fields = [
    wideField("Search for", queryInput),
    field("Category", categoryInput),
    suggestions("categories", CATEGORIES),
  ];
  return h("search", {}, queryForm("Show", submit, fields));
}

function knowledgeRow(item, namespace, reload) {
  const target = { knowledge: { category: item.category, key: item.key } };
  const forget = () => openForgetDialog(namespace, target, "this knowledge", reload);
  const forgetButton = button("Forget …", forget, { class: "quiet danger", "aria-label": `Forget ${item.key}` });
  const original = originalButton(namespace, { id: item.id }, reload);
  return h(
    "article",
    { class: "message", role: "listitem", tabindex: "-1" },
    h("header", {}, h("span", { class: "meta" }, metadata(item)), original, forgetButton),
    textBlock(item.cut ? `${item.value} …` : item.value, { class: "text-block short" }),
    h(
      "p",
      { class: "confidence" },
      h("span", { class: "muted" }, "Confidence"),
      bar(item.confidence),
      h("span", { class: "number" }, percent(item.confidence)),
    ),
  );
}

function metadata(item) {
  return [
    h("span", { class: "tag" }, isolatedName(words(item.category))),
    h("strong", { class: "row-title" }, isolatedName(item.key)),
    h("time", { class: "muted", datetime: item.updated_at }, time(item.updated_at)),
    h("span", { class: "muted" }, `used ${plural(item.uses, "time")}`),
    item.source ? h("span", { class: "muted" }, "source: ", isolatedName(item.source)) : null,
  ];
}
