// Search, with what each signal gave to the score of a hit.

import { post } from "../api.js";
import { bar } from "../charts.js";
import { h, named } from "../dom.js";
import { plural, score, words } from "../format.js";
import { messageRow } from "../messages.js";
import { fill, nothing } from "../notices.js";
import { askForm, choice, field, wideField } from "../parts.js";
import { go, href } from "../routes.js";

const STRATEGIES = {
  best: "best",
  second_look: "second look",
  words: "words alone",
  similarity: "meaning alone",
  recency: "newest first",
  importance: "importance",
  hybrid: "hybrid",
  tf_idf: "TF-IDF",
};
const WITHOUT_WORDS = new Set(["recency", "importance"]); // they rank whatever there is
const LIMITS = { 10: "10", 20: "20", 50: "50", 100: "100" };
const HINT =
  "Ask in your own words. Each hit shows why it came: what words, meaning, time and the rest gave to its score.";

export const title = (parameters) => (parameters.get("q") ? `Search: ${parameters.get("q")}` : "Search");

export async function render({ content, parameters, namespace, signal, reload }) {
  const asked = {
    query: parameters.get("q") ?? "",
    strategy: parameters.get("strategy") ?? "best",
    session: parameters.get("s"),
    limit: Number(parameters.get("limit") ?? 20),
  };
  const results = h("div", { class: "results", "aria-live": "polite" });
  content.replaceChildren(form(namespace, asked), results);
  if (!asked.query && !WITHOUT_WORDS.has(asked.strategy)) {
    content.querySelector("input").focus();
    results.replaceChildren(nothing(HINT));
    return;
  }
  const find = async () => hits(await post("recall", { namespace, ...asked }, signal), namespace, reload);
  await fill(results, find, reload);
}

function form(namespace, { query, strategy, session, limit }) {
  const q = h("input", { type: "search", value: query, dir: "auto", enterkeyhint: "search" });
  const how = choice(STRATEGIES, strategy);
  const where = h("input", { value: session, placeholder: "all", autocomplete: "off", dir: "auto" });
  const most = choice(LIMITS, String(limit));
  const send = () =>
    go("search", { ns: namespace, q: q.value, strategy: how.value, s: where.value, limit: most.value });
  const fields = [
    wideField("Search for", q),
    field("Ranked by", how),
    field("Session", where),
    field("At most", most),
  ];
  return h("search", {}, askForm("Search", send, fields));
}

function hits({ hits: all, problems, seconds }, namespace, reload) {
  const most = Math.max(1e-9, ...all.flatMap((hit) => Object.values(hit.signals).map(Math.abs)));
  const best = Math.max(1e-9, ...all.map((hit) => hit.score));
  const rows = all.map((hit) => row(hit, namespace, reload, signals(hit, best, most)));
  return [
    ...problems.map((text) => h("p", { class: "notice bad", dir: "auto" }, text)),
    h("p", { class: "muted" }, `${plural(all.length, "hit")} in ${Math.max(1, Math.round(seconds * 1000))} ms`),
    all.length
      ? h("div", { class: "pages", role: "list", "aria-label": "Hits, best first" }, rows)
      : nothing("Nothing answers that. Try other words, or another way of ranking."),
  ];
}

function row(hit, namespace, reload, extra) {
  const address = href("session", { ns: namespace, s: hit.session });
  const link = hit.session ? h("a", { href: address }, named(hit.session)) : null;
  const session = hit.kind === "message" ? hit.session : null;
  return messageRow({ namespace, session, message: { ...hit, reason: hit.why }, link, extra, onGone: reload });
}

function signals(hit, best, most) {
  const of = Object.entries(hit.signals).sort((one, other) => Math.abs(other[1]) - Math.abs(one[1]));
  const line = (name, value, share, kind) =>
    h("div", { class: kind }, h("dt", {}, name), h("dd", {}, bar(share), h("span", { class: "number" }, score(value))));
  return h(
    "dl",
    { class: "signals" },
    line("score", hit.score, hit.score / best, "whole"),
    of.map(([name, value]) => line(words(name), value, Math.abs(value) / most, value < 0 ? "against" : "for")),
  );
}
