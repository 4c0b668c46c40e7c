// Dialogs: the token, the whole of a memory, and forgetting, which asks first and shows the receipt after.

import { ApiError, get, part, post } from "./api.js";
import { announce, h, named, said } from "./dom.js";
import { count, plural, time, words } from "./format.js";
import { stateMark } from "./marks.js";
import { failure, loading } from "./notices.js";
import { actions, button, facts, field } from "./parts.js";
import { wholeText } from "./texts.js";

function open(heading, attributes, ...children) {
  const title = h("h2", { id: "dialog-title", tabindex: "-1" }, heading);
  const close = button("Close", () => dialog.close(), { class: "quiet" });
  const bar = h("div", { class: "dialog-head" }, title, attributes.modal ? null : close);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", class: attributes.class }, bar, ...children);
  const from = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (from?.isConnected) from.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Close what belongs to a page that is left; the token is asked for by all of them. */
export function closeDialogs() {
  document.querySelectorAll("dialog:not(.token)").forEach((dialog) => dialog.close());
}

/** Ask for a token; resolves to one. */
export function tokenDialog(wasRefused) {
  const { promise, resolve } = Promise.withResolvers();
  const plain = { pattern: "\\s*[!-~]+\\s*", title: "Letters, digits and signs without spaces" };
  const input = h("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false", ...plain });
  const why = wasRefused
    ? h("p", { class: "notice bad", role: "alert" }, "The server did not take that token.")
    : h("p", {}, "This server wants a token. It is kept in this tab until you close it.");
  let isGiven = false;
  const send = (event) => {
    event.preventDefault();
    isGiven = true;
    resolve(input.value.trim());
    dialog.close();
  };
  const done = actions(h("button", { class: "primary" }, "Go on"));
  const form = h("form", { onsubmit: send }, why, field("Token", input), done);
  const dialog = open("Token", { class: "small token", modal: true }, form);
  dialog.addEventListener("cancel", (event) => event.preventDefault()); // there is nothing to see without it
  dialog.addEventListener("close", () => {
    if (isGiven) return;
    document.body.append(dialog); // browsers let a second Escape through
    dialog.showModal();
    input.focus();
  });
  input.focus();
  return promise;
}

/**
 * Show the whole of a memory, with what can be done to it.
 *
 * Args:
 *   at: {id, session}: a message is known by both, any other memory by its id.
 */
export async function entryDialog(namespace, at, onGone) {
  const body = h("div", { class: "dialog-body" }, loading());
  const dialog = open("Original", { class: "entry" }, body);
  try {
    const entry = await get(`entries/${part(at.id)}`, { namespace, session: at.session });
    body.replaceChildren(...entryParts(namespace, { ...entry, at }, dialog, onGone));
  } catch (error) {
    body.replaceChildren(failure(error));
  }
}

/** A button that shows it. */
export function originalButton(namespace, at, onGone) {
  return button("Original", () => entryDialog(namespace, at, onGone), { class: "quiet original" });
}

function entryParts(namespace, entry, dialog, onGone) {
  const result = h("div", { role: "status" });
  const of = entry.at.session;
  const promote = async () => {
    try {
      const now = await post(`entries/${part(entry.at.id)}/promote`, { namespace, session: of });
      result.replaceChildren(h("p", { class: "notice good" }, `Promoted: it is in the ${words(now.tier)} tier.`));
    } catch (error) {
      result.replaceChildren(failure(error));
    }
  };
  const forget = () => {
    dialog.close();
    forgetDialog(namespace, { entry: entry.at.id, session: of }, of ? "this message" : "this memory", onGone);
  };
  return [
    facts(about(entry).filter(([, value]) => value)),
    ...(entry.text || !entry.calls.length ? [wholeText(entry.text)] : []),
    ...entry.calls.flatMap((call) => [h("h3", {}, "Call of ", named(call.name)), wholeText(call.arguments, "Arguments")]),
    ...cameOf(entry),
    result,
    actions(
      button("Copy", (event) => copy(wholeOf(entry), event.target)),
      of ? button("Promote", promote) : null,
      button("Forget …", forget, { class: "danger" }),
    ),
  ];
}

function wholeOf({ text, calls }) {
  return [text, ...calls.map((call) => `${call.name} ${call.arguments}`)].filter(Boolean).join("\n");
}

// The text of a step of a run holds no more of its result than recall looks at.
function cameOf({ text, result }) {
  if (!result || text.includes(result)) return [];
  return [h("h3", {}, "Result"), wholeText(result, "Result")];
}

function about(entry) {
  return [
    ["Role", entry.role && [named(entry.role), entry.name ? [" (", named(entry.name), ")"] : null]],
    ["Kind", entry.kind !== "message" && named(words(entry.kind))],
    ["Session", entry.session && named(entry.session)],
    ["Time", time(entry.time)],
    ["Tokens", count(entry.tokens)],
    ["Tier", words(entry.tier)],
    ["State", stateMark(entry.state)],
    ["Reason", entry.reason && named(entry.reason)],
    ["Id", named(entry.id)],
  ];
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "The browser does not allow it here";
  }
}

/**
 * Ask whether something may be erased for good, erase it, show the receipt.
 *
 * Args:
 *   what: the fields of the request that name it.
 *   told: the same in words.
 *   typed: what the person has to type before, for what is large.
 */
export async function forgetDialog(namespace, what, told, onGone, typed = null) {
  const body = h("div", { class: "dialog-body" }, loading());
  const dialog = open(`Forget ${told}?`, { class: "small" }, body);
  let erased = false;
  dialog.addEventListener("close", () => erased && onGone());
  dialog.addEventListener("cancel", (event) => body.ariaBusy && event.preventDefault());
  const erase = async (event) => {
    event.preventDefault();
    body.setAttribute("aria-busy", "true");
    dialog.querySelectorAll("button").forEach((button) => (button.disabled = true));
    try {
      const receipt = await post("forget", { namespace, ...what, confirm: true });
      erased = true;
      dialog.querySelector("h2").textContent = "Receipt";
      body.replaceChildren(...receiptParts(receipt));
      dialog.querySelector("h2").focus();
      announce("Erased");
    } catch (error) {
      body.replaceChildren(failure(error));
    }
    body.removeAttribute("aria-busy");
    dialog.querySelectorAll("button").forEach((button) => (button.disabled = false));
    if (!dialog.open) onGone(); // browsers let a second Escape through
  };
  body.replaceChildren(question(await wouldErase(namespace, what), erase, dialog, typed));
  body.querySelector("input, .cancel")?.focus();
}

// Without a confirmation the server says what it would erase, and erases nothing.
async function wouldErase(namespace, what) {
  try {
    await post("forget", { namespace, ...what });
    throw new ApiError(500, "unasked", "The server erased it without a confirmation.");
  } catch (error) {
    return error;
  }
}

function question(answer, erase, dialog, typed) {
  if (answer.kind !== "not_confirmed") return failure(answer);
  const sure = h("button", { class: "danger solid", disabled: typed !== null }, "Erase for good");
  const keep = button("Keep it", () => dialog.close(), { class: "cancel" });
  return h(
    "form",
    { onsubmit: erase },
    said(sentence(answer.message)),
    h("p", {}, "It leaves the record, the search index, the vectors and the caches. It cannot be taken back."),
    typed === null ? null : typing(typed, sure),
    actions(keep, sure),
  );
}

function typing(typed, sure) {
  const oninput = (event) => (sure.disabled = event.target.value !== typed);
  const label = h("span", {}, "Type ", h("code", {}, named(typed)), " to go on");
  return field(label, h("input", { autocomplete: "off", spellcheck: "false", oninput }));
}

// What a program has to send is nothing for a person.
function sentence(message) {
  const told = message.split(": send confirm", 1)[0];
  return `${told.charAt(0).toUpperCase()}${told.slice(1)}.`;
}

function receiptParts({ id, erased_at: at, counts, remade, left, notes }) {
  const gone = Object.entries(counts).map(([name, number]) => [words(name), count(number)]);
  return [
    h("p", {}, left.length ? "Erased, with something left to do:" : "Erased. This is what is gone:"),
    ...(left.length ? [h("ul", { class: "notice bad" }, left.map((text) => h("li", { dir: "auto" }, text)))] : []),
    facts(gone.length ? gone : [["erased", "nothing was there"]], { class: "facts number" }),
    ...(remade ? [h("p", {}, `Told anew from what is left: ${plural(remade, "summary or entry", "of them")}.`)] : []),
    ...notes.map((text) => said(text, { class: "said muted" })),
    h("p", { class: "muted" }, "Receipt ", h("code", {}, named(id)), `, ${time(at)}`),
  ];
}
