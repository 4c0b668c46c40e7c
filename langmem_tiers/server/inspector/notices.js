// Notices shown instead of content: loading, empty or failed.

import { h, isolatedName } from "./dom.js";
import { button } from "./widgets.js";

const HEADINGS = {
  0: "Connection failed.",
  403: "Access denied.",
  404: "Not found.",
  413: "Request too large.",
  503: "Service unavailable.",
};

/** An error message, with a button to retry if `retry` is given. */
export function errorNotice(error, retry) {
  const heading = h("strong", {}, HEADINGS[error.status] ?? "Request failed.");
  const message = h("p", {}, heading, " ", isolatedName(error.message));
  return h("div", { class: "notice error", role: "alert" }, message, retry ? button("Try again", retry) : null);
}

/** A notice that there is nothing to show. */
export const emptyNotice = (...text) => h("div", { class: "notice" }, h("p", {}, ...text));

/** A placeholder until the content is loaded. */
export const loadingNotice = () => h("p", { class: "loading", "aria-hidden": "true" }, "Loading …");

/** Load the content of an element and insert it, or the error; the form next to it stays usable. */
export async function loadInto(element, load, retry) {
  element.replaceChildren(loadingNotice());
  try {
    element.replaceChildren(...(await load()));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    element.replaceChildren(errorNotice(error, retry));
  }
}
