// A list that loads page by page. Only the pages near the viewport are rendered, so a list of 100,000 messages costs no
// more than a list of a few hundred.

import { announce, h } from "./dom.js";
import { errorNotice } from "./notices.js";
import { button } from "./widgets.js";

const RENDER_MARGIN = "1200px"; // rendered above and below the viewport

/**
 * Args:
 *   load: called with a cursor (null for the first page), resolves to {items, next}.
 *   render: creates the element of an item.
 *   empty: creates the element shown if the list is empty.
 *   label: accessible name of the list.
 *   signal: aborts loading.
 */
export class PagedList {
  constructor({ load, render, empty, label, signal }) {
    Object.assign(this, { load, render, empty, signal });
    this.itemsByPage = new Map();
    this.cursor = null;
    this.isLoading = false;
    this.itemCount = 0;
    const margin = { rootMargin: RENDER_MARGIN };
    this.pageObserver = new IntersectionObserver((changes) => this.#renderVisible(changes), margin);
    this.endObserver = new IntersectionObserver((changes) => this.#loadAtEnd(changes), margin);
    this.more = button("Show more", () => this.#loadNext(), { class: "more", hidden: true });
    this.notice = h("div", {});
    this.body = h("div", { class: "pages", role: "list", "aria-label": label });
    this.body.addEventListener("keydown", (event) => this.#moveFocus(event));
    this.element = h("div", { class: "list" }, this.body, this.notice, this.more);
    signal?.addEventListener("abort", () => this.stop());
  }

  /** Load the first page. */
  start() {
    return this.#loadNext();
  }

  /** Stop loading and rendering pages. */
  stop() {
    this.pageObserver.disconnect();
    this.endObserver.disconnect();
  }

  async #loadNext() {
    if (this.isLoading || this.signal?.aborted) return;
    this.isLoading = true;
    this.element.setAttribute("aria-busy", "true");
    try {
      this.notice.replaceChildren();
      this.#append(await this.load(this.cursor));
    } catch (error) {
      if (error.name === "AbortError") return;
      this.notice.replaceChildren(errorNotice(error, () => this.#loadNext()));
      this.more.hidden = true;
    } finally {
      this.isLoading = false;
      this.element.removeAttribute("aria-busy");
      this.#observeEnd();
    }
  }

  // A page may be empty even if another page follows.
  #append({ items, next }) {
    this.cursor = next ?? null;
    this.more.hidden = this.cursor === null;
    if (items.length) this.body.append(this.#createPage(items));
    else if (this.cursor === null && !this.itemsByPage.size) this.notice.replaceChildren(this.empty());
  }

  // The end may still be visible. An observer only reports changes, so it has to start again.
  #observeEnd() {
    this.endObserver.unobserve(this.more);
    if (!this.more.hidden) this.endObserver.observe(this.more);
  }

  #createPage(items) {
    const page = h("div", { class: "page", role: "presentation" });
    this.itemsByPage.set(page, items);
    this.#renderPage(page);
    this.pageObserver.observe(page);
    this.itemCount += items.length;
    if (this.itemsByPage.size > 1) announce(`${this.itemCount} loaded`);
    return page;
  }

  #renderPage(page) {
    page.style.height = "";
    page.replaceChildren(...this.itemsByPage.get(page).map((item) => this.render(item)));
  }

  // A page outside the viewport is emptied and keeps its height, unless it contains the focus.
  #renderVisible(changes) {
    for (const { target, isIntersecting, boundingClientRect } of changes) {
      if (isIntersecting && !target.hasChildNodes()) this.#renderPage(target);
      else if (!isIntersecting && target.hasChildNodes() && !target.contains(document.activeElement)) {
        target.style.height = `${boundingClientRect.height}px`;
        target.replaceChildren();
      }
    }
  }

  #loadAtEnd(changes) {
    if (changes.some((change) => change.isIntersecting)) this.#loadNext();
  }

  // The keys j and k move the focus to the next and the previous item.
  #moveFocus(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !"jk".includes(event.key)) return;
    const items = [...this.body.querySelectorAll("[role=listitem]")];
    const index = items.indexOf(event.target.closest("[role=listitem]"));
    const item = items[index + (event.key === "j" ? 1 : -1)];
    if (index < 0 || !item) return;
    event.preventDefault();
    item.focus({ preventScroll: true });
    item.scrollIntoView({ block: "nearest" });
  }
}
