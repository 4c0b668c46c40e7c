// Overview of a namespace: tiers, tokens, growth and optimizer runs.

import { get, post } from "../api.js";
import { bar, chart, chartTable } from "../charts.js";
import { openForgetDialog } from "../dialogs.js";
import { h, isolatedName } from "../dom.js";
import { compactCount, count, day, percent, plural, score, time, words } from "../format.js";
import { emptyNotice, errorNotice } from "../notices.js";
import { actions, button, panel, propertyList, table } from "../widgets.js";

const MAX_RUNS = 200; // newest runs in the charts
const TIERS = {
  working: "current prompt",
  short_term: "messages of the sessions",
  long_term: "promoted in this namespace",
  knowledge: "across sessions, with confidence",
  episodic: "episodes of conversations",
  procedural: "learned patterns",
};
const PARAMETERS = {
  compressionTrigger: ["Compression threshold", percent, [0, 1]],
  fullMessageWindow: ["Newest messages in full", count, null],
  minRelevance: ["Minimum relevance", score, [0, 1]],
  targetUsageRatio: ["Target usage", percent, [0, 1]],
};

export const title = () => "Overview";

export async function render({ content, namespace, signal, reload }) {
  const [overview, history] = await Promise.all([
    get("overview", { namespace }, signal),
    get("learning/optimizer/history", { namespace, limit: MAX_RUNS }, signal),
  ]);
  content.replaceChildren(
    totals(overview),
    h("div", { class: "columns" }, tiersPanel(overview), growthPanel(overview)),
    optimizerPanel(namespace, overview, history.items.reverse(), reload),
    forgetPanel(namespace),
  );
}

function totals({ sessions, messages, tokens, knowledge }) {
  const values = { Sessions: sessions, Messages: messages, Tokens: tokens, Knowledge: knowledge };
  return propertyList(Object.entries(values).map(([name, value]) => [name, count(value)]), { class: "tiles" });
}

function tiersPanel({ tiers, knowledge }) {
  const hasKnowledge = tiers.some(({ tier }) => tier === "knowledge");
  const all = hasKnowledge ? tiers : [...tiers, { tier: "knowledge", entries: knowledge }];
  const maxTokens = Math.max(1, ...all.map((tier) => tier.tokens ?? 0));
  const columns = [{ name: "Tier" }, { name: "Entries", class: "number" }, { name: "Tokens", class: "number wide" }];
  const row = ({ tier, entries, tokens }) => [
    [words(tier), h("span", { class: "muted description" }, TIERS[tier])],
    count(entries),
    [count(tokens), bar(tokens / maxTokens)],
  ];
  return panel("Tiers", table(columns, all.map(row)));
}

function growthPanel({ growth, growth_is_whole: isComplete }) {
  if (!growth.length) return panel("Growth", emptyNotice("No messages in the last 90 days."));
  const days = fillMissingDays(growth);
  const dailyChart = (title, key) => {
    const points = days.map((usage) => ({ label: day(usage.day), value: usage[key] }));
    return chart({ title, points, height: 132, format: count, axis: compactCount });
  };
  const rows = days.map((usage) => [day(usage.day), count(usage.messages), count(usage.tokens)]);
  return panel(
    "Growth",
    dailyChart("Messages per day", "messages"),
    dailyChart("Tokens per day", "tokens"),
    isComplete ? null : h("p", { class: "muted" }, "Too many messages to count: only the newest days are shown."),
    chartTable("Growth by day", ["Day", "Messages", "Tokens"], rows),
  );
}

// The server omits days without messages; the charts show them as zero.
function fillMissingDays(growth) {
  const usageByDay = new Map(growth.map((usage) => [usage.day, usage]));
  const known = [...usageByDay.keys()].sort();
  const days = [];
  const last = new Date(known.at(-1));
  for (const date = new Date(known[0]); date <= last; date.setUTCDate(date.getUTCDate() + 1)) {
    const name = date.toISOString().slice(0, 10);
    days.push(usageByDay.get(name) ?? { day: name, messages: 0, tokens: 0 });
  }
  return days;
}

function optimizerPanel(namespace, { optimizer: status, budget }, runs, reload) {
  const result = h("div", { role: "status" });
  const run = async ({ target }) => {
    target.disabled = true;
    try {
      await post("learning/optimizer/run", { namespace });
      await reload();
    } catch (error) {
      result.replaceChildren(errorNotice(error));
      target.disabled = false;
    }
  };
  const saved = `${plural(status.totalOptimizations, "run")} saved ${plural(status.totalTokensSaved, "token")}`;
  return panel(
    "Optimizer",
    h("p", {}, `${saved}, ${count(status.avgSavingsPerRun)} per run on average.`),
    runs.length ? savingsChart(runs) : emptyNotice("The optimizer has not run yet."),
    h("div", { class: "multiples" }, Object.keys(PARAMETERS).map((name) => parameterChart(name, runs, status))),
    runs.length ? runsTable(runs) : null,
    result,
    actions(button(`Run now with a budget of ${plural(budget, "token")}`, run)),
  );
}

const toPoint = (run, index, value) => ({ label: String(index + 1), value, note: `Run ${index + 1}, ${time(run.at)}` });

function savingsChart(runs) {
  const title = runs.length < MAX_RUNS ? "Tokens saved per run" : `Tokens saved per run, last ${MAX_RUNS} runs`;
  const points = runs.map((run, index) => toPoint(run, index, run.tokens_saved));
  return chart({ title, points, format: count, axis: compactCount });
}

function parameterChart(name, runs, status) {
  const [label, format, range] = PARAMETERS[name];
  const title = `${label}: ${format(status.currentParameters[name])}`;
  if (runs.length < 2) return h("p", { class: "muted number" }, title);
  const points = runs.map((run, index) => toPoint(run, index, run.parameters[name]));
  return chart({ title, points, kind: "steps", height: 104, format, range });
}

function runsTable(runs) {
  const parameters = Object.entries(PARAMETERS);
  const values = (run) => parameters.map(([name, [, format]]) => format(run.parameters[name]));
  const rows = runs.map((run, index) => [`${index + 1} · ${time(run.at)}`, count(run.tokens_saved), ...values(run)]);
  const names = ["Run", "Tokens saved", ...parameters.map(([, [label]]) => label)];
  return chartTable("Optimizer runs", names, rows.reverse());
}

function forgetPanel(namespace) {
  const leave = () => location.replace(location.pathname);
  const forget = () => openForgetDialog(namespace, { whole: true }, "this namespace", leave, namespace);
  return panel(
    "Forget",
    h("p", {}, "Erase everything stored in ", h("strong", {}, isolatedName(namespace)), "."),
    actions(button("Forget this namespace …", forget, { class: "danger" })),
  );
}
