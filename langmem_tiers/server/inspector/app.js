// The frame: which page is shown, for which namespace, and where the focus goes.

import { get, onTokenWanted } from "./api.js";
import { closeDialogs, tokenDialog } from "./dialogs.js";
import { announce, h, named } from "./dom.js";
import { failure, loading, nothing } from "./notices.js";
import { field } from "./parts.js";
import { href, readRoute } from "./routes.js";
import * as knowledge from "./pages/knowledge.js";
import * as overview from "./pages/overview.js";
import * as preview from "./pages/preview.js";
import * as search from "./pages/search.js";
import * as session from "./pages/session.js";
import * as sessions from "./pages/sessions.js";
import * as task from "./pages/task.js";
import * as tasks from "./pages/tasks.js";

const PAGES = { overview, sessions, session, search, preview, knowledge, tasks, task };
const main = document.getElementById("main");
let open = null; // what the page in view waits for
let namespaces = null;

async function show() {
  open?.abort();
  open = new AbortController();
  const { signal } = open;
  const isFirst = !main.hasChildNodes();
  const route = readRoute();
  if (!Object.hasOwn(PAGES, route.page)) route.page = "overview";
  closeDialogs();
  main.setAttribute("aria-busy", "true");
  main.replaceChildren(loading());
  try {
    namespaces ??= await firstNamespaces();
    if (signal.aborted) return;
    const namespace = route.parameters.get("ns") ?? namespaces.items[0]?.namespace;
    showTenant(namespace, route);
    showMenu(namespace, route.page);
    if (namespace === undefined) main.replaceChildren(h("h1", {}, "Memory inspector"), emptyMemory());
    else await showPage(route, namespace, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    main.replaceChildren(h("h1", {}, "Memory inspector"), failure(error, show));
  }
  if (!signal.aborted) settle(isFirst);
}

async function showPage({ page, parameters }, namespace, signal) {
  const { title, render } = PAGES[page];
  const heading = title(parameters);
  document.title = `${heading} · ${namespace} · Memory inspector`;
  const content = h("div", { class: "content" });
  main.replaceChildren(h("h1", { tabindex: "-1" }, named(heading)), content);
  await render({ content, parameters, namespace, signal, reload: show });
}

// After going to another page the focus is at its top, as after loading one; a form that was sent keeps it.
function settle(isFirst) {
  main.removeAttribute("aria-busy");
  const heading = main.querySelector("h1");
  announce(heading?.textContent ?? "");
  if (isFirst || main.contains(document.activeElement)) return;
  heading?.focus({ preventScroll: true });
  window.scrollTo({ top: 0, behavior: "instant" });
}

async function firstNamespaces() {
  return get("namespaces", { limit: 200 });
}

function showMenu(namespace, page) {
  const parent = { session: "sessions", task: "tasks" }[page] ?? page;
  for (const link of document.querySelectorAll("#menu a")) {
    link.href = href(link.dataset.page, { ns: namespace });
    if (link.dataset.page === parent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// A list to choose from; where there are too many to list, a field that completes.
function showTenant(namespace, { page }) {
  const parent = { session: "sessions", task: "tasks" }[page] ?? page;
  const go = (event) => event.target.value && (location.hash = href(parent, { ns: event.target.value }));
  const names = new Set(namespaces.items.map((item) => item.namespace));
  if (namespace !== undefined) names.add(namespace);
  const options = [...names].sort().map((name) => h("option", { value: name, selected: name === namespace }, name));
  const control = namespaces.next
    ? h("input", { list: "namespaces", value: namespace, onchange: go, autocomplete: "off", spellcheck: "false" })
    : h("select", { onchange: go, disabled: options.length === 0 }, options);
  const list = namespaces.next ? h("datalist", { id: "namespaces" }, options) : null;
  document.getElementById("tenant").replaceChildren(field("Namespace", control), ...(list ? [list] : []));
}

function emptyMemory() {
  document.title = "Memory inspector";
  return nothing("Nothing is stored yet. What an agent says to this memory shows up here: load the page again then.");
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names a page, not a place in it
  main.focus();
});
onTokenWanted(tokenDialog);
window.addEventListener("hashchange", show);
show();
