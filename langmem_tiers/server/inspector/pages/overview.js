// What there is: tiers, tokens, growth, and what the optimizer did.

import { get, post } from "../api.js";
import { asTable, bar, chart } from "../charts.js";
import { forgetDialog } from "../dialogs.js";
import { h, named } from "../dom.js";
import { brief, count, day, percent, plural, score, time, words } from "../format.js";
import { failure, nothing } from "../notices.js";
import { actions, button, facts, panel, table } from "../parts.js";

const RUNS = 200; // the newest ones are drawn
const TIERS = {
  working: "this prompt",
  short_term: "this session",
  long_term: "this namespace, promoted",
  knowledge: "across sessions, with a confidence",
  episodic: "moments",
  procedural: "learned patterns",
};
const PARAMETERS = {
  compressionTrigger: ["Compresses from", percent, [0, 1]],
  fullMessageWindow: ["Newest messages in full", count, null],
  minRelevance: ["Least relevance kept", score, [0, 1]],
  targetUsageRatio: ["Budget aimed at", percent, [0, 1]],
};

export const title = () => "Overview";

export async function render({ content, namespace, signal, reload }) {
  const [told, history] = await Promise.all([
    get("overview", { namespace }, signal),
    get("learning/optimizer/history", { namespace, limit: RUNS }, signal),
  ]);
  content.replaceChildren(
    tiles(told),
    h("div", { class: "columns" }, tiers(told), growth(told)),
    optimizer(namespace, told, history.items.reverse(), reload),
    leaving(namespace),
  );
}

function tiles({ sessions, messages, tokens, knowledge }) {
  const numbers = { Sessions: sessions, Messages: messages, Tokens: tokens, "Known things": knowledge };
  return facts(Object.entries(numbers).map(([name, value]) => [name, count(value)]), { class: "tiles" });
}

function tiers({ tiers: told, knowledge }) {
  const isTold = told.some((one) => one.tier === "knowledge");
  const all = isTold ? told : [...told, { tier: "knowledge", entries: knowledge }];
  const most = Math.max(1, ...all.map((one) => one.tokens ?? 0));
  const columns = [{ name: "Tier" }, { name: "Entries", class: "number" }, { name: "Tokens", class: "number wide" }];
  const row = ({ tier, entries, tokens }) => [
    [words(tier), h("span", { class: "muted below" }, TIERS[tier])],
    count(entries),
    [count(tokens), bar(tokens / most)],
  ];
  return panel("Tiers", table(columns, all.map(row)));
}

function growth({ growth: told, growth_is_whole: isWhole }) {
  if (!told.length) return panel("Growth", nothing("No message in the last 90 days."));
  const days = filled(told);
  const daily = (name, key) => {
    const points = days.map((one) => ({ label: day(one.day), value: one[key] }));
    return chart({ title: name, points, height: 132, format: count, axis: brief });
  };
  const rows = days.map((one) => [day(one.day), count(one.messages), count(one.tokens)]);
  return panel(
    "Growth",
    daily("Messages a day", "messages"),
    daily("Tokens a day", "tokens"),
    isWhole ? null : h("p", { class: "muted" }, "There is more than is counted here: the newest days are shown."),
    asTable("Growth by day", ["Day", "Messages", "Tokens"], rows),
  );
}

// Days on which nothing was said are days too.
function filled(told) {
  const by = new Map(told.map((one) => [one.day, one]));
  const sorted = [...by.keys()].sort();
  const all = [];
  for (const at = new Date(sorted[0]); at <= new Date(sorted.at(-1)); at.setUTCDate(at.getUTCDate() + 1)) {
    const name = at.toISOString().slice(0, 10);
    all.push(by.get(name) ?? { day: name, messages: 0, tokens: 0 });
  }
  return all;
}

function optimizer(namespace, { optimizer: status, budget }, runs, reload) {
  const result = h("div", { role: "status" });
  const run = async ({ target }) => {
    target.disabled = true;
    try {
      await post("learning/optimizer/run", { namespace });
      await reload();
    } catch (error) {
      result.replaceChildren(failure(error));
      target.disabled = false;
    }
  };
  const saved = `${plural(status.totalOptimizations, "run")} saved ${plural(status.totalTokensSaved, "token")}`;
  return panel(
    "Optimizer",
    h("p", {}, `${saved}, ${count(status.avgSavingsPerRun)} on average.`),
    runs.length ? savings(runs) : nothing("It has not run yet."),
    h("div", { class: "multiples" }, Object.keys(PARAMETERS).map((name) => parameter(name, runs, status))),
    runs.length ? runsTable(runs) : null,
    result,
    actions(button(`Run it now, for a budget of ${plural(budget, "token")}`, run)),
  );
}

const pointOf = (run, index, value) => ({ label: String(index + 1), value, note: `Run ${index + 1}, ${time(run.at)}` });

function savings(runs) {
  const title = runs.length < RUNS ? "Tokens saved by each run" : `Tokens saved by each of the last ${RUNS} runs`;
  const points = runs.map((run, index) => pointOf(run, index, run.tokens_saved));
  return chart({ title, points, format: count, axis: brief });
}

function parameter(name, runs, status) {
  const [label, format, range] = PARAMETERS[name];
  const title = `${label}: ${format(status.currentParameters[name])}`;
  if (runs.length < 2) return h("p", { class: "muted number" }, title);
  const points = runs.map((run, index) => pointOf(run, index, run.parameters[name]));
  return chart({ title, points, kind: "steps", height: 104, format, range });
}

function runsTable(runs) {
  const shown = Object.entries(PARAMETERS);
  const values = (run) => shown.map(([name, [, format]]) => format(run.parameters[name]));
  const rows = runs.map((run, index) => [`${index + 1} · ${time(run.at)}`, count(run.tokens_saved), ...values(run)]);
  const names = ["Run", "Tokens saved", ...shown.map(([, [label]]) => label)];
  return asTable("Runs of the optimizer", names, rows.reverse());
}

function leaving(namespace) {
  const leave = () => location.replace(location.pathname);
  const forget = () => forgetDialog(namespace, { whole: true }, "this namespace", leave, namespace);
  return panel(
    "Forget",
    h("p", {}, "Erase everything that is stored in ", h("strong", {}, named(namespace)), "."),
    actions(button("Forget this namespace …", forget, { class: "danger" })),
  );
}
