// Application frame: route handling, namespace picker, menu and keyboard focus.

import { get, setTokenPrompt } from "./api.js";
import { closeDialogs, promptForToken } from "./dialogs.js";
import { announce, h, isolatedName } from "./dom.js";
import { emptyNotice, errorNotice, loadingNotice } from "./notices.js";
import { href, readRoute } from "./routes.js";
import { field } from "./widgets.js";
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
let pageRequests = null; // aborts the requests of the current page
let namespaces = null;

async function showRoute() {
  pageRequests?.abort();
  pageRequests = new AbortController();
  const { signal } = pageRequests;
  const isFirst = !main.hasChildNodes();
  const route = readRoute();
  if (!Object.hasOwn(PAGES, route.page)) route.page = "overview";
  closeDialogs();
  main.setAttribute("aria-busy", "true");
  main.replaceChildren(loadingNotice());
  try {
    namespaces ??= await get("namespaces", { limit: 200 });
    if (signal.aborted) return;
    const namespace = route.parameters.get("ns") ?? namespaces.items[0]?.namespace;
    renderNamespacePicker(namespace, route.page);
    updateMenu(namespace, route.page);
    if (namespace === undefined) main.replaceChildren(h("h1", {}, "Memory inspector"), emptyMemoryNotice());
    else await renderPage(route, namespace, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    main.replaceChildren(h("h1", {}, "Memory inspector"), errorNotice(error, showRoute));
  }
  if (!signal.aborted) finishNavigation(isFirst);
}

async function renderPage({ page, parameters }, namespace, signal) {
  const { title, render } = PAGES[page];
  const heading = title(parameters);
  document.title = `${heading} · ${namespace} · Memory inspector`;
  const content = h("div", { class: "content" });
  main.replaceChildren(h("h1", { tabindex: "-1" }, isolatedName(heading)), content);
  await render({ content, parameters, namespace, signal, reload: showRoute });
}

// Navigation moves the focus to the heading, as a full page load would. A submitted form keeps the focus.
function finishNavigation(isFirst) {
  main.removeAttribute("aria-busy");
  const heading = main.querySelector("h1");
  announce(heading?.textContent ?? "");
  if (isFirst || main.contains(document.activeElement)) return;
  heading?.focus({ preventScroll: true });
  window.scrollTo({ top: 0, behavior: "instant" });
}

// The menu has no item for a single session or task: their lists are marked as current.
const menuPageOf = (page) => ({ session: "sessions", task: "tasks" })[page] ?? page;

function updateMenu(namespace, page) {
  for (const link of document.querySelectorAll("#menu a")) {
    link.href = href(link.dataset.page, { ns: namespace });
    if (link.dataset.page === menuPageOf(page)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// A drop-down list, or a text field with completion if not all namespaces were loaded.
function renderNamespacePicker(namespace, page) {
  const onchange = ({ target }) => target.value && (location.hash = href(menuPageOf(page), { ns: target.value }));
  const names = new Set(namespaces.items.map((item) => item.namespace));
  if (namespace !== undefined) names.add(namespace);
  const options = [...names].sort().map((name) => h("option", { value: name, selected: name === namespace }, name));
  const control = namespaces.next
    ? h("input", { list: "namespaces", value: namespace, onchange, autocomplete: "off", spellcheck: "false" })
    : h("select", { onchange, disabled: options.length === 0 }, options);
  const list = namespaces.next ? h("datalist", { id: "namespaces" }, options) : null;
  document.getElementById("namespace-picker").replaceChildren(field("Namespace", control), ...(list ? [list] : []));
}

function emptyMemoryNotice() {
  document.title = "Memory inspector";
  return emptyNotice("The memory is empty. After an agent has stored messages, reload this page to see them.");
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the URL fragment contains the route, so it cannot name an element
  main.focus();
});
setTokenPrompt(promptForToken);
window.addEventListener("hashchange", showRoute);
showRoute();
