// Dialogs: the token prompt, the original of a memory, and erasure with its confirmation and receipt.

import { ApiError, encodeSegment, get, post } from "./api.js";
import { announce, h, isolatedName, textBlock } from "./dom.js";
import { count, plural, time, words } from "./format.js";
import { fullText } from "./long_text.js";
import { errorNotice, loadingNotice } from "./notices.js";
import { stateLabel } from "./states.js";
import { actions, button, field, propertyList } from "./widgets.js";

function openDialog(heading, { className, isClosable = true }, ...children) {
  const title = h("h2", { id: "dialog-title", tabindex: "-1" }, heading);
  const close = isClosable ? button("Close", () => dialog.close(), { class: "quiet" }) : null;
  const head = h("div", { class: "dialog-head" }, title, close);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", class: className }, head, ...children);
  const opener = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (opener?.isConnected) opener.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Close the dialogs of the page that the user leaves. The token prompt stays open, because every page needs it. */
export function closeDialogs() {
  document.querySelectorAll("dialog:not(.token)").forEach((dialog) => dialog.close());
}

/** Prompt for a token; the returned promise resolves to it. */
export function promptForToken(wasRejected) {
  const { promise, resolve } = Promise.withResolvers();
  const format = { pattern: "\\s*[!-~]+\\s*", title: "Letters, digits and symbols, without spaces" };
  const input = h("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false", ...format });
  const explanation = wasRejected
    ? h("p", { class: "notice error", role: "alert" }, "The server rejected the token.")
    : h("p", {}, "This server requires a token. It is stored in this tab until you close it.");
  let isSubmitted = false;
  const onsubmit = (event) => {
    event.preventDefault();
    isSubmitted = true;
    resolve(input.value.trim());
    dialog.close();
  };
  const buttons = actions(h("button", { class: "primary" }, "Continue"));
  const form = h("form", { onsubmit }, explanation, field("Token", input), buttons);
  const dialog = openDialog("Token", { className: "small token", isClosable: false }, form);
  dialog.addEventListener("cancel", (event) => event.preventDefault()); // the pages are empty without a token
  dialog.addEventListener("close", () => {
    if (isSubmitted) return;
    document.body.append(dialog); // browsers close a dialog on the second Escape in spite of preventDefault()
    dialog.showModal();
    input.focus();
  });
  input.focus();
  return promise;
}

/**
 * Show a memory with its complete content, and the actions on it.
 *
 * Args:
 *   address: {id, session}: a message is identified by both, any other memory by its id.
 *   onForgotten: called after the memory was erased.
 */
async function openEntry(namespace, address, onForgotten) {
  const body = h("div", { class: "dialog-body" }, loadingNotice());
  const dialog = openDialog("Original", { className: "entry" }, body);
  try {
    const entry = await get(`entries/${encodeSegment(address.id)}`, { namespace, session: address.session });
    body.replaceChildren(...entryContent(namespace, address, entry, dialog, onForgotten));
  } catch (error) {
    body.replaceChildren(errorNotice(error));
  }
}

/** A button that shows a memory with its complete content. */
export function originalButton(namespace, address, onForgotten) {
  return button("Original", () => openEntry(namespace, address, onForgotten), { class: "quiet original" });
}

function entryContent(namespace, { id, session }, entry, dialog, onForgotten) {
  const result = h("div", { role: "status" });
  const promote = async () => {
    try {
      const { tier } = await post(`entries/${encodeSegment(id)}/promote`, { namespace, session });
      result.replaceChildren(h("p", { class: "notice success" }, `Promoted to the ${words(tier)} tier.`));
    } catch (error) {
      result.replaceChildren(errorNotice(error));
    }
  };
  const forget = () => {
    dialog.close();
    openForgetDialog(namespace, { entry: id, session }, session ? "this message" : "this memory", onForgotten);
  };
  return [
    propertyList(properties(entry).filter(([, value]) => value)),
    ...(entry.text || !entry.calls.length ? [fullText(entry.text)] : []),
    ...entry.calls.flatMap(callContent),
    ...resultContent(entry),
    result,
    actions(
      button("Copy", (event) => copy(plainText(entry), event.target)),
      session ? button("Promote", promote) : null,
      button("Forget …", forget, { class: "danger" }),
    ),
  ];
}

function callContent(call) {
  return [h("h3", {}, "Tool call: ", isolatedName(call.name)), fullText(call.arguments, "Arguments")];
}

function plainText({ text, calls }) {
  return [text, ...calls.map((call) => `${call.name} ${call.arguments}`)].filter(Boolean).join("\n");
}

// The text of a step of a task only contains the part of its result that recall searches.
function resultContent({ text, result }) {
  if (!result || text.includes(result)) return [];
  return [h("h3", {}, "Result"), fullText(result, "Result")];
}

function properties(entry) {
  const speaker = entry.name ? [" (", isolatedName(entry.name), ")"] : null;
  return [
    ["Role", entry.role && [isolatedName(entry.role), speaker]],
    ["Kind", entry.kind !== "message" && isolatedName(words(entry.kind))],
    ["Session", entry.session && isolatedName(entry.session)],
    ["Time", time(entry.time)],
    ["Tokens", count(entry.tokens)],
    ["Tier", words(entry.tier)],
    ["State", stateLabel(entry.state)],
    ["Reason", entry.reason && isolatedName(entry.reason)],
    ["Id", isolatedName(entry.id)],
  ];
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "The browser blocked copying";
  }
}

/**
 * Ask for confirmation, erase something permanently, and show the receipt.
 *
 * Args:
 *   target: fields of the request that identify what to erase.
 *   name: name of the target in the heading, for example "this session".
 *   onForgotten: called after the erasure, when the dialog is closed.
 *   requiredText: text that the user has to type before a large erasure, if any.
 */
export async function openForgetDialog(namespace, target, name, onForgotten, requiredText = null) {
  const body = h("div", { class: "dialog-body" }, loadingNotice());
  const dialog = openDialog(`Forget ${name}?`, { className: "small" }, body);
  const heading = dialog.querySelector("h2");
  const setBusy = (isBusy) => {
    if (isBusy) body.setAttribute("aria-busy", "true");
    else body.removeAttribute("aria-busy");
    dialog.querySelectorAll("button").forEach((button) => (button.disabled = isBusy));
  };
  let isErased = false;
  dialog.addEventListener("close", () => isErased && onForgotten());
  dialog.addEventListener("cancel", (event) => body.ariaBusy && event.preventDefault());
  const erase = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const receipt = await post("forget", { namespace, ...target, confirm: true });
      isErased = true;
      heading.textContent = "Receipt";
      body.replaceChildren(...receiptContent(receipt));
      heading.focus();
      announce("Erased");
    } catch (error) {
      body.replaceChildren(errorNotice(error));
    }
    setBusy(false);
    if (!dialog.open) onForgotten(); // browsers close a dialog on the second Escape in spite of preventDefault()
  };
  const refusal = await requestWithoutConfirmation(namespace, target);
  body.replaceChildren(confirmationForm(refusal, erase, dialog, requiredText));
  body.querySelector("input, .cancel")?.focus();
}

// Without a confirmation, the server erases nothing and responds with an error that describes what it would erase.
async function requestWithoutConfirmation(namespace, target) {
  try {
    await post("forget", { namespace, ...target });
    throw new ApiError(500, "unconfirmed", "The server erased it without a confirmation.");
  } catch (error) {
    return error;
  }
}

function confirmationForm(error, erase, dialog, requiredText) {
  if (error.kind !== "not_confirmed") return errorNotice(error);
  const confirm = h("button", { class: "danger solid", disabled: requiredText !== null }, "Erase permanently");
  const cancel = button("Cancel", () => dialog.close(), { class: "cancel" });
  return h(
    "form",
    { onsubmit: erase },
    textBlock(toSentence(error.message)),
    h("p", {}, "It is erased from the record, the search index, vectors and caches. This cannot be undone."),
    requiredText === null ? null : requiredTextField(requiredText, confirm),
    actions(cancel, confirm),
  );
}

function requiredTextField(requiredText, confirm) {
  const oninput = (event) => (confirm.disabled = event.target.value !== requiredText);
  const label = h("span", {}, "Type ", h("code", {}, isolatedName(requiredText)), " to confirm");
  return field(label, h("input", { autocomplete: "off", spellcheck: "false", oninput }));
}

// Remove the instruction for programs from the message, and format the rest as a sentence.
function toSentence(message) {
  const text = message.split(": send confirm", 1)[0];
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function receiptContent({ id, erased_at: erasedAt, counts, remade, left, notes }) {
  const erased = Object.entries(counts).map(([name, number]) => [words(name), count(number)]);
  return [
    h("p", {}, left.length ? "Partly erased. Remaining steps:" : "Erased:"),
    ...(left.length ? [h("ul", { class: "notice error" }, left.map((text) => h("li", { dir: "auto" }, text)))] : []),
    propertyList(erased.length ? erased : [["erased", "nothing"]], { class: "properties number" }),
    ...(remade ? [h("p", {}, `Rebuilt without the erased content: ${plural(remade, "record")}.`)] : []),
    ...notes.map((text) => textBlock(text, { class: "text-block muted" })),
    h("p", { class: "muted" }, "Receipt ", h("code", {}, isolatedName(id)), `, ${time(erasedAt)}`),
  ];
}
