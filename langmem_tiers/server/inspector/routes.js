// Addresses of pages: #/search?ns=acme/alice&q=..., so that each can be linked.

/** The page that the address names, and its parameters. */
export function readRoute() {
  const [page, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { page: page || "overview", parameters: new URLSearchParams(query) };
}

/** The address of a page; parameters that are empty are left out. */
export function href(page, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#/${page}?${new URLSearchParams(given)}`;
}

/** Go there; to go where one is already is to load it again. */
export function go(page, parameters) {
  const to = href(page, parameters);
  if (location.hash === to) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = to;
}
