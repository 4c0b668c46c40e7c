// Parts that pages are put together from.

import { freshId, h, named } from "./dom.js";

/** A part of a page with a heading, in a frame. */
export function panel(heading, ...children) {
  const id = freshId("panel");
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, heading), children);
}

/** The same without a frame, for rows that have their own. */
export function plainPanel(heading, ...children) {
  const made = panel(heading, children);
  made.classList.add("plain");
  return made;
}

/** A button that does something here and now. */
export const button = (text, onclick, attributes) => h("button", { type: "button", onclick, ...attributes }, text);

/** Buttons in a row. */
export const actions = (...children) => h("p", { class: "actions" }, children);

/** A field with its label above it. */
export function field(label, control, attributes) {
  control.id ||= freshId("field");
  return h("p", { class: "field", ...attributes }, h("label", { for: control.id }, label), control);
}

/** The same for what takes the room that is left. */
export const wideField = (label, control) => field(label, control, { class: "field grow" });

/** Fields in a row, with a button at the end that sends them. */
export function askForm(label, send, fields, ...links) {
  const onsubmit = (event) => {
    event.preventDefault();
    send();
  };
  return h("form", { class: "ask", onsubmit }, fields, actions(h("button", { class: "primary" }, label), links));
}

/** A list to choose from: texts by their values. */
export function choice(options, chosen) {
  const option = ([value, text]) => h("option", { value, selected: value === chosen }, text);
  return h("select", {}, Object.entries(options).map(option));
}

/** What a field may be completed to. */
export const completions = (id, names) => h("datalist", { id }, [...names].map((value) => h("option", { value })));

/** A table of columns {name, class} and rows of cells; the first cell names its row. */
export function table(columns, rows) {
  const head = columns.map((column) => h("th", { scope: "col", class: column.class }, column.name));
  const row = ([first, ...cells]) => [
    h("th", { scope: "row" }, first),
    cells.map((cell, index) => h("td", { class: columns[index + 1].class }, cell)),
  ];
  return h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map((one) => h("tr", {}, row(one)))));
}

/** Names with their values. */
export function facts(pairs, attributes) {
  const fact = ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  return h("dl", { class: "facts", ...attributes }, pairs.map(fact));
}

/** The way back to the page above. */
export function crumbs(name, address, here) {
  return h("p", { class: "crumbs" }, h("a", { href: address }, name), " / ", named(here));
}
