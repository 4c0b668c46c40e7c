// Widgets shared by the pages.

import { h, isolatedName, uniqueId } from "./dom.js";

/** A framed section with a heading. */
export function panel(heading, ...children) {
  const id = uniqueId("panel");
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, heading), children);
}

/** A section without a frame, for lists whose rows are framed. */
export function plainPanel(heading, ...children) {
  const section = panel(heading, children);
  section.classList.add("plain");
  return section;
}

/** A button that runs an action; it does not submit a form. */
export const button = (text, onclick, attributes) => h("button", { type: "button", onclick, ...attributes }, text);

/** A row of buttons. */
export const actions = (...children) => h("p", { class: "actions" }, children);

/** A form field with its label above it. */
export function field(label, control, attributes) {
  control.id ||= uniqueId("field");
  return h("p", { class: "field", ...attributes }, h("label", { for: control.id }, label), control);
}

/** A form field that uses the remaining width. */
export const wideField = (label, control) => field(label, control, { class: "field grow" });

/** A form with its fields in a row, followed by the submit button and links. */
export function queryForm(label, submit, fields, ...links) {
  const onsubmit = (event) => {
    event.preventDefault();
    submit();
  };
  const buttons = actions(h("button", { class: "primary" }, label), links);
  return h("form", { class: "query-form", onsubmit }, fields, buttons);
}

/** A drop-down list; `options` maps values to texts. */
export function dropDown(options, selected) {
  const option = ([value, text]) => h("option", { value, selected: value === selected }, text);
  return h("select", {}, Object.entries(options).map(option));
}

/** Suggestions for a text field. */
export const suggestions = (id, values) => h("datalist", { id }, [...values].map((value) => h("option", { value })));

/** A table with columns {name, class} and rows of cells; the first cell of a row is its header. */
export function table(columns, rows) {
  const headers = columns.map((column) => h("th", { scope: "col", class: column.class }, column.name));
  const cellsOf = ([first, ...cells]) => [
    h("th", { scope: "row" }, first),
    cells.map((cell, index) => h("td", { class: columns[index + 1].class }, cell)),
  ];
  const body = rows.map((row) => h("tr", {}, cellsOf(row)));
  return h("table", {}, h("thead", {}, h("tr", {}, headers)), h("tbody", {}, body));
}

/** A list of names with their values. */
export function propertyList(pairs, attributes) {
  const property = ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  return h("dl", { class: "properties", ...attributes }, pairs.map(property));
}

/** A link to the parent page, followed by the name of the current page. */
export function breadcrumbs(parent, address, current) {
  return h("p", { class: "breadcrumbs" }, h("a", { href: address }, parent), " / ", isolatedName(current));
}
