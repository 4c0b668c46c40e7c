// What is shown in place of an answer: nothing yet, nothing there, or what went wrong.

import { h, named } from "./dom.js";
import { button } from "./parts.js";

const HEADINGS = {
  0: "No connection.",
  403: "Not allowed.",
  404: "Not there.",
  413: "Too large.",
  503: "Out of order.",
};

/** Something went wrong, in words, with a way on. */
export function failure(error, retry) {
  const heading = h("strong", {}, HEADINGS[error.status] ?? "That did not work.");
  const again = retry ? button("Try again", retry) : null;
  return h("div", { class: "notice bad", role: "alert" }, h("p", {}, heading, " ", named(error.message)), again);
}

/** There is nothing. */
export const nothing = (...text) => h("div", { class: "notice" }, h("p", {}, ...text));

/** It is on its way. */
export const loading = () => h("p", { class: "loading", "aria-hidden": "true" }, "Loading …");

/** Fill a place with what was asked for, or with what went wrong; the form that asked stays beside it. */
export async function fill(place, ask, retry) {
  place.replaceChildren(loading());
  try {
    place.replaceChildren(...(await ask()));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    place.replaceChildren(failure(error, retry));
  }
}
