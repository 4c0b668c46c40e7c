// Questions to the server. Where it wants a token, the person is asked for one, once for all open questions.

const ROOT = new URL("..", import.meta.url);
const KEPT = "langmem-tiers-token";

/** What the server, or the way to it, said no with. */
export class ApiError extends Error {
  constructor(status, kind, message) {
    super(message);
    Object.assign(this, { status, kind });
  }
}

let askForToken = null;
let asking = null;

/** Set what asks the person: called with whether a token was refused, it resolves to a token. */
export function onTokenWanted(ask) {
  askForToken = ask;
}

/** GET a path; parameters that are empty are left out. */
export function get(path, parameters, signal) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return answered(url, { signal });
}

/** POST a body as JSON. */
export function post(path, body, signal) {
  const sending = { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return answered(new URL(path, ROOT), { method: "POST", ...sending, signal });
}

/** One part of a path, whatever it holds. */
export const part = (text) => encodeURIComponent(text);

async function answered(url, options) {
  for (;;) {
    const token = sessionStorage.getItem(KEPT);
    const response = await sent(url, options, token);
    if (response.status === 401 && askForToken) {
      await newToken(token);
      continue;
    }
    const body = await read(response);
    if (!response.ok) throw refusal(response.status, body);
    return body;
  }
}

async function sent(url, options, token) {
  const headers = { Accept: "application/json", ...options.headers };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  try {
    return await fetch(url, { ...options, headers, credentials: "omit", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server does not answer. See whether it still runs, then try again.");
  }
}

async function newToken(refused) {
  if (sessionStorage.getItem(KEPT) !== refused) return; // another question brought one meanwhile
  asking ??= askForToken(refused !== null).finally(() => (asking = null));
  sessionStorage.setItem(KEPT, await asking);
}

async function read(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(response.status, "unreadable", `The answer is not JSON (status ${response.status}).`);
  }
}

function refusal(status, body) {
  const { kind = "error", message = `The server said no (status ${status}).` } = body?.error ?? {};
  return new ApiError(status, kind, message);
}
