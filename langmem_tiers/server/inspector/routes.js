// Page addresses such as #/search?ns=acme/alice&q=..., so that every page can be linked.

/** Return the page and the parameters of the current address. */
export function readRoute() {
  const [page, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { page: page || "overview", parameters: new URLSearchParams(query) };
}

/** Return the address of a page; empty parameters are omitted. */
export function href(page, parameters) {
  const used = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#/${page}?${new URLSearchParams(used)}`;
}

/** Navigate to a page; the current page is reloaded. */
export function navigate(page, parameters) {
  const address = href(page, parameters);
  if (location.hash === address) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = address;
}
