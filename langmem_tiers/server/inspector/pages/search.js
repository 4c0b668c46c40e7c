// Search, with the score of each hit by signal.

import { post } from "../api.js";
import { bar } from "../charts.js";
import { h, isolatedName } from "../dom.js";
import { plural, score, words } from "../format.js";
import { messageRow } from "../messages.js";
import { emptyNotice, loadInto } from "../notices.js";
import { href, navigate } from "../routes.js";
import { dropDown, field, queryForm, wideField } from "../widgets.js";

const STRATEGIES = {
  best: "best",
  second_look: "second look",
  words: "words only",
  similarity: "meaning only",
  recency: "newest first",
  importance: "importance",
  hybrid: "hybrid",
  tf_idf: "TF-IDF",
};
const STRATEGIES_WITHOUT_QUERY = new Set(["recency", "importance"]); // they rank all memories
const LIMITS = { 10: "10", 20: "20", 50: "50", 100: "100" };
const HINT = "Enter a question in your own words. Each hit shows its score by signal: words, meaning, time and others.";

export const title = (parameters) => (parameters.get("q") ? `Search: ${parameters.get("q")}` : "Search");

export async function render({ content, parameters, namespace, signal, reload }) {
  const request = {
    query: parameters.get("q") ?? "",
    strategy: parameters.get("strategy") ?? "best",
    session: parameters.get("s"),
    limit: Number(parameters.get("limit") ?? 20),
  };
  const results = h("div", { class: "results", "aria-live": "polite" });
  content.replaceChildren(searchForm(namespace, request), results);
  if (!request.query && !STRATEGIES_WITHOUT_QUERY.has(request.strategy)) {
    content.querySelector("input").focus();
    results.replaceChildren(emptyNotice(HINT));
    return;
  }
  const load = async () => hitsContent(await post("recall", { namespace, ...request }, signal), namespace, reload);
  await loadInto(results, load, reload);
}

function searchForm(namespace, { query, strategy, session, limit }) {
  const queryInput = h("input", { type: "search", value: query, dir: "auto", enterkeyhint: "search" });
  const strategyList = dropDown(STRATEGIES, strategy);
  const sessionInput = h("input", { value: session, placeholder: "all", autocomplete: "off", dir: "auto" });
  const limitList = dropDown(LIMITS, String(limit));
  const submit = () => {
    const filters = { strategy: strategyList.value, s: sessionInput.value, limit: limitList.value };
    navigate("search", { ns: namespace, q: queryInput.value, ...filters });
  };
  const fields = [
    wideField("Search for", queryInput),
    field("Ranking", strategyList),
    field("Session", sessionInput),
    field("Maximum hits", limitList),
  ];
  return h("search", {}, queryForm("Search", submit, fields));
}

function hitsContent({ hits, problems, seconds }, namespace, reload) {
  const maxSignal = Math.max(1e-9, ...hits.flatMap((hit) => Object.values(hit.signals).map(Math.abs)));
  const maxScore = Math.max(1e-9, ...hits.map((hit) => hit.score));
  const rows = hits.map((hit) => hitRow(hit, namespace, reload, scoreBreakdown(hit, maxScore, maxSignal)));
  return [
    ...problems.map((text) => h("p", { class: "notice error", dir: "auto" }, text)),
    h("p", { class: "muted" }, `${plural(hits.length, "hit")} in ${Math.max(1, Math.round(seconds * 1000))} ms`),
    hits.length
      ? h("div", { class: "pages", role: "list", "aria-label": "Hits, best first" }, rows)
      : emptyNotice("No hits. Try other words or another ranking."),
  ];
}

function hitRow(hit, namespace, reload, extra) {
  const address = href("session", { ns: namespace, s: hit.session });
  const link = hit.session ? h("a", { href: address }, isolatedName(hit.session)) : null;
  const session = hit.kind === "message" ? hit.session : null;
  return messageRow({ namespace, session, message: { ...hit, reason: hit.why }, link, extra, onForgotten: reload });
}

function scoreBreakdown(hit, maxScore, maxSignal) {
  const signals = Object.entries(hit.signals).sort(([, left], [, right]) => Math.abs(right) - Math.abs(left));
  const line = (name, value, share, kind) =>
    h("div", { class: kind }, h("dt", {}, name), h("dd", {}, bar(share), h("span", { class: "number" }, score(value))));
  const signalLine = ([name, value]) =>
    line(words(name), value, Math.abs(value) / maxSignal, value < 0 ? "negative" : "positive");
  return h(
    "dl",
    { class: "signals" },
    line("score", hit.score, hit.score / maxScore, "total"),
    signals.map(signalLine),
  );
}
