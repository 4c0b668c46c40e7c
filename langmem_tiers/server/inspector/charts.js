// Charts: columns or steps over an axis, and horizontal bars. Charts are drawn at the available width, so that labels
// keep their size.

import { h, s } from "./dom.js";
import { table } from "./widgets.js";

const LEFT = 48;
const BOTTOM = 22;
const TOP = 10;

/**
 * Create a chart. Add a table of the same numbers below it for screen readers.
 *
 * Args:
 *   title: caption.
 *   points: {label, value, note} in order.
 *   kind: "columns" or "steps".
 *   height: height in pixels.
 *   format: formats a value.
 *   axis: formats a value for the axis; default is `format`.
 *   range: minimum and maximum of the axis; default is taken from the values.
 */
export function chart(options) {
  const frame = h("div", { class: "chart" });
  const draw = () => frame.clientWidth && frame.replaceChildren(drawChart(options, frame.clientWidth));
  new ResizeObserver(draw).observe(frame);
  return h("figure", { class: "figure" }, h("figcaption", {}, options.title), frame);
}

function drawChart({ title, points, kind = "columns", height = 180, format, axis = format, range = null }, width) {
  const [low, high, step] = computeScale(points.map((point) => point.value), range);
  const inner = { width: Math.max(40, width - LEFT - 8), height: height - TOP - BOTTOM };
  const y = (value) => TOP + inner.height * (1 - (value - low) / (high - low || 1));
  const x = (index) => LEFT + (inner.width / points.length) * index;
  const marks = kind === "steps" ? drawSteps(points, x, y, format) : drawColumns(points, x, y, format);
  const description = describeChart(title, points, format);
  return s(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": description },
    drawGrid(low, high, step, y, width, axis),
    s("g", { class: `marks ${kind}` }, marks),
    drawLabels(points, x, inner.width, height),
  );
}

function describeChart(title, points, format) {
  const values = points.map((point) => point.value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const range = `${points.length} values from ${format(low)} to ${format(high)}`;
  return `${title}: ${range}, last value ${format(values.at(-1))}`;
}

// Return the ends of the axis as round numbers, and the distance between grid lines.
function computeScale(values, range) {
  const low = range ? range[0] : Math.min(0, ...values);
  const high = range ? range[1] : Math.max(0, ...values);
  const minStep = (high - low || 1) / 3;
  const power = 10 ** Math.floor(Math.log10(minStep));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= minStep);
  return [Math.floor(low / step) * step, Math.max(Math.ceil(high / step) * step, low + step), step];
}

function drawGrid(low, high, step, y, width, axis) {
  const lines = [];
  for (let value = low; value <= high + step / 1000; value += step) {
    const kind = Math.abs(value) < step / 1000 ? "zero-line" : "grid-line";
    lines.push(
      s("line", { class: kind, x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
      s("text", { class: "axis-label", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, axis(value)),
    );
  }
  return s("g", { class: "grid" }, lines);
}

const tooltip = (point, format) => s("title", {}, `${point.note ?? point.label}: ${format(point.value)}`);

function drawColumns(points, x, y, format) {
  const gap = x(1) - x(0) > 6 ? 2 : 0.5;
  return points.map((point, index) => {
    const [top, bottom] = [Math.min(y(point.value), y(0)), Math.max(y(point.value), y(0))];
    const width = Math.min(28, x(index + 1) - x(index) - gap);
    const height = Math.max(point.value ? 1 : 0, bottom - top);
    const box = { x: (x(index) + x(index + 1) - width) / 2, y: top, width, height, rx: Math.min(2, width / 4) };
    return s("rect", { class: point.value < 0 ? "negative" : null, ...box }, tooltip(point, format));
  });
}

function drawSteps(points, x, y, format) {
  const path = points.map((point, i) => `${i ? "V" : `M${x(0)} `}${y(point.value)}H${x(i + 1)}`).join("");
  const hoverArea = (point, i) => {
    const box = { x: x(i), y: TOP, width: x(i + 1) - x(i), height: Math.max(1, y(0) - TOP) };
    return s("rect", { class: "hover-area", ...box }, tooltip(point, format));
  };
  return [s("path", { d: path }), points.map(hoverArea)];
}

// Draw every n-th label, starting with the first, so that labels do not overlap.
function drawLabels(points, x, width, height) {
  const maxLabels = Math.max(1, Math.floor(width / 64));
  const interval = Math.max(1, Math.ceil(points.length / maxLabels));
  const labels = points.map((point, index) => {
    if (index % interval) return null;
    const position = { x: (x(index) + x(index + 1)) / 2, y: height - 6, "text-anchor": "middle" };
    return s("text", { class: "axis-label", ...position }, point.label);
  });
  return s("g", {}, labels);
}

/** A collapsible table with the numbers of charts: column names, then rows whose first cell is the row header. */
export function chartTable(label, names, rows) {
  const columns = names.map((name, index) => ({ name, class: index ? "number" : null }));
  const region = { class: "scroll", tabindex: "0", role: "region", "aria-label": label };
  const numbers = h("div", region, table(columns, rows));
  return h("details", { class: "chart-table" }, h("summary", {}, "Show as table"), numbers);
}

/** A horizontal bar for a share between 0 and 1. It is hidden from screen readers: show the number next to it. */
export function bar(share, attributes) {
  const width = Math.min(100, Math.max(0, (Number.isFinite(share) ? share : 0) * 100));
  return s(
    "svg",
    { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true", ...attributes },
    s("rect", { class: "track", width: 100, height: 6 }),
    s("rect", { class: "fill", width, height: 6 }),
  );
}
