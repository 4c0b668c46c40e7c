// HTTP client. If the server requires a token, the user is prompted once for all pending requests.

const ROOT = new URL("..", import.meta.url);
const TOKEN_KEY = "langmem-tiers-token";

/** Error response of the server, or a failed connection (status 0). */
export class ApiError extends Error {
  constructor(status, kind, message) {
    super(message);
    Object.assign(this, { status, kind });
  }
}

let tokenPrompt = null;
let pendingPrompt = null;

/** Set the function that prompts the user: called with true if a token was rejected, it resolves to a token. */
export function setTokenPrompt(prompt) {
  tokenPrompt = prompt;
}

/** GET a path; empty parameters are omitted. */
export function get(path, parameters, signal) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return request(url, { signal });
}

/** POST a body as JSON. */
export function post(path, body, signal) {
  const content = { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return request(new URL(path, ROOT), { method: "POST", ...content, signal });
}

/** Encode one segment of a path. */
export const encodeSegment = (text) => encodeURIComponent(text);

async function request(url, options) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN_KEY);
    const response = await send(url, options, token);
    if (response.status === 401 && tokenPrompt) {
      await replaceToken(token);
      continue;
    }
    const body = await parseJson(response);
    if (!response.ok) throw toApiError(response.status, body);
    return body;
  }
}

async function send(url, options, token) {
  const headers = { Accept: "application/json", ...options.headers };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  try {
    return await fetch(url, { ...options, headers, credentials: "omit", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server is not responding. Check that it is running, then try again.");
  }
}

async function replaceToken(rejected) {
  if (sessionStorage.getItem(TOKEN_KEY) !== rejected) return; // another request has already replaced it
  pendingPrompt ??= tokenPrompt(rejected !== null).finally(() => (pendingPrompt = null));
  sessionStorage.setItem(TOKEN_KEY, await pendingPrompt);
}

async function parseJson(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(response.status, "unreadable", `The response is not valid JSON (status ${response.status}).`);
  }
}

function toApiError(status, body) {
  const { kind = "error", message = `The server rejected the request (status ${status}).` } = body?.error ?? {};
  return new ApiError(status, kind, message);
}
