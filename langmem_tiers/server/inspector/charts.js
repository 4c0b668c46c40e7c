// Drawings: columns and steps over an axis, and bars in a row. They are drawn at the width that there is, so that
// labels keep their size, and each can be read as a table.

import { h, s } from "./dom.js";
import { table } from "./parts.js";

const LEFT = 48;
const BOTTOM = 22;
const TOP = 10;

/**
 * A chart. Put a table of the same numbers below it.
 *
 * Args:
 *   points: {label, value, note} in order.
 *   kind: "columns" or "steps".
 *   format: writes a value; `axis` writes it on the axis.
 *   range: the least and the greatest value of the axis, if they are known beforehand.
 */
export function chart(told) {
  const frame = h("div", { class: "chart" });
  const draw = () => frame.clientWidth && frame.replaceChildren(drawing(told, frame.clientWidth));
  new ResizeObserver(draw).observe(frame);
  return h("figure", { class: "figure" }, h("figcaption", {}, told.title), frame);
}

function drawing({ title, points, kind = "columns", height = 180, format, axis = format, range = null }, width) {
  const [low, high, step] = scale(points.map((point) => point.value), range);
  const inner = { width: Math.max(40, width - LEFT - 8), height: height - TOP - BOTTOM };
  const y = (value) => TOP + inner.height * (1 - (value - low) / (high - low || 1));
  const x = (index) => LEFT + (inner.width / points.length) * index;
  const marks = kind === "steps" ? steps(points, x, y, format) : bars(points, x, y, format);
  return s(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken(title, points, format) },
    grid(low, high, step, y, width, axis),
    s("g", { class: `marks ${kind}` }, marks),
    names(points, x, inner.width, height),
  );
}

function spoken(title, points, format) {
  const values = points.map((point) => point.value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = `${points.length} values from ${format(low)} to ${format(high)}`;
  return `${title}: ${span}, the last is ${format(values.at(-1))}`;
}

// Round numbers around the values, and the step between the lines of the grid.
function scale(values, range) {
  const low = range ? range[0] : Math.min(0, ...values);
  const high = range ? range[1] : Math.max(0, ...values);
  const rough = (high - low || 1) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((times) => times * power).find((size) => size >= rough);
  return [Math.floor(low / step) * step, Math.max(Math.ceil(high / step) * step, low + step), step];
}

function grid(low, high, step, y, width, axis) {
  const lines = [];
  for (let value = low; value <= high + step / 1000; value += step) {
    const kind = Math.abs(value) < step / 1000 ? "zero" : "rule";
    lines.push(
      s("line", { class: kind, x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
      s("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, axis(value)),
    );
  }
  return s("g", { class: "grid" }, lines);
}

const hint = (point, format) => s("title", {}, `${point.note ?? point.label}: ${format(point.value)}`);

function bars(points, x, y, format) {
  const gap = x(1) - x(0) > 6 ? 2 : 0.5;
  return points.map((point, index) => {
    const [top, bottom] = [Math.min(y(point.value), y(0)), Math.max(y(point.value), y(0))];
    const width = Math.min(28, x(index + 1) - x(index) - gap);
    const height = Math.max(point.value ? 1 : 0, bottom - top);
    const place = { x: (x(index) + x(index + 1) - width) / 2, y: top, width, height, rx: Math.min(2, width / 4) };
    return s("rect", { class: point.value < 0 ? "below" : null, ...place }, hint(point, format));
  });
}

function steps(points, x, y, format) {
  const path = points.map((point, i) => `${i ? "V" : `M${x(0)} `}${y(point.value)}H${x(i + 1)}`).join("");
  const target = (point, i) => {
    const place = { x: x(i), y: TOP, width: x(i + 1) - x(i), height: Math.max(1, y(0) - TOP) };
    return s("rect", { class: "target", ...place }, hint(point, format));
  };
  return [s("path", { d: path }), points.map(target)];
}

// As many labels below the axis as there is room for, the first and the last among them.
function names(points, x, width, height) {
  const room = Math.max(1, Math.floor(width / 64));
  const every = Math.max(1, Math.ceil(points.length / room));
  const shown = points.map((point, index) => [point, index]).filter(([, index]) => index % every === 0);
  const write = ([point, index]) => {
    const at = { class: "tick", x: (x(index) + x(index + 1)) / 2, y: height - 6, "text-anchor": "middle" };
    return s("text", at, point.label);
  };
  return s("g", {}, shown.map(write));
}

/** Numbers of charts to read: names of the columns, then rows whose first cell names them. */
export function asTable(label, names, rows) {
  const columns = names.map((name, index) => ({ name, class: index ? "number" : null }));
  const region = { class: "scroll", tabindex: "0", role: "region", "aria-label": label };
  const numbers = h("div", region, table(columns, rows));
  return h("details", { class: "as-table" }, h("summary", {}, "As a table"), numbers);
}

/** A bar that shows a share; its number stands beside it. */
export function bar(share, attributes) {
  const width = Math.min(100, Math.max(0, (Number.isFinite(share) ? share : 0) * 100));
  return s(
    "svg",
    { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true", ...attributes },
    s("rect", { class: "track", width: 100, height: 6 }),
    s("rect", { class: "fill", width, height: 6 }),
  );
}
