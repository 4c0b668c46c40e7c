// A list that loads page by page and keeps only the pages near the window in the document, so that a list of
// 100,000 messages costs no more than one of a few hundred.

import { announce, h } from "./dom.js";
import { failure } from "./notices.js";
import { button } from "./parts.js";

const NEAR = "1200px"; // what is rendered above and below the window

/**
 * Args:
 *   load: given a cursor (null at first) resolves to {items, next}.
 *   render: makes the element of an item.
 *   empty: what to show when there is nothing.
 */
export class PagedList {
  constructor({ load, render, empty, label, signal }) {
    Object.assign(this, { load, render, empty, signal });
    this.pages = new Map();
    this.next = null;
    this.busy = false;
    this.shownCount = 0;
    this.near = new IntersectionObserver((changes) => this.#window(changes), { rootMargin: NEAR });
    this.end = new IntersectionObserver((changes) => this.#atEnd(changes), { rootMargin: NEAR });
    this.more = button("Show more", () => this.#append(), { class: "more", hidden: true });
    this.problem = h("div", {});
    this.body = h("div", { class: "pages", role: "list", "aria-label": label });
    this.body.addEventListener("keydown", (event) => this.#step(event));
    this.element = h("div", { class: "list" }, this.body, this.problem, this.more);
    signal?.addEventListener("abort", () => this.stop());
  }

  /** Load the first page. */
  start() {
    return this.#append();
  }

  /** Watch nothing any more. */
  stop() {
    this.near.disconnect();
    this.end.disconnect();
  }

  async #append() {
    if (this.busy || this.signal?.aborted) return;
    this.busy = true;
    this.element.setAttribute("aria-busy", "true");
    try {
      this.problem.replaceChildren();
      this.#add(await this.load(this.next));
    } catch (error) {
      if (error.name === "AbortError") return;
      this.problem.replaceChildren(failure(error, () => this.#append()));
      this.more.hidden = true;
    } finally {
      this.busy = false;
      this.element.removeAttribute("aria-busy");
      this.#again();
    }
  }

  // A page may be empty although there is another one behind it.
  #add({ items, next }) {
    this.next = next ?? null;
    this.more.hidden = this.next === null;
    if (items.length) this.body.append(this.#page(items));
    else if (this.next === null && !this.pages.size) this.problem.replaceChildren(this.empty());
  }

  // The end may still be in sight: an observer tells of changes alone.
  #again() {
    this.end.unobserve(this.more);
    if (!this.more.hidden) this.end.observe(this.more);
  }

  #page(items) {
    const node = h("div", { class: "page", role: "presentation" });
    this.pages.set(node, items);
    this.#fill(node);
    this.near.observe(node);
    this.shownCount += items.length;
    if (this.pages.size > 1) announce(`${this.shownCount} loaded`);
    return node;
  }

  #fill(node) {
    node.style.height = "";
    node.replaceChildren(...this.pages.get(node).map((item) => this.render(item)));
  }

  #window(changes) {
    for (const { target, isIntersecting, boundingClientRect } of changes) {
      if (isIntersecting && !target.hasChildNodes()) this.#fill(target);
      else if (!isIntersecting && target.hasChildNodes() && !target.contains(document.activeElement)) {
        target.style.height = `${boundingClientRect.height}px`;
        target.replaceChildren();
      }
    }
  }

  #atEnd(changes) {
    if (changes.some((change) => change.isIntersecting)) this.#append();
  }

  // j and k go from one to the next, once the focus is in the list.
  #step(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !"jk".includes(event.key)) return;
    const all = [...this.body.querySelectorAll("[role=listitem]")];
    const at = all.indexOf(event.target.closest("[role=listitem]"));
    const to = all[at + (event.key === "j" ? 1 : -1)];
    if (at < 0 || !to) return;
    event.preventDefault();
    to.focus({ preventScroll: true });
    to.scrollIntoView({ block: "nearest" });
  }
}
