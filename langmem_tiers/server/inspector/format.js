// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const moment = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const dayOnly = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** 12,345 */
export const count = (value) => (Number.isFinite(value) ? whole.format(value) : "–");

/** 12.3K, for axes */
export const brief = (value) => short.format(value).toLowerCase();

/** 0.42 */
export const score = (value) => (Number.isFinite(value) ? value.toFixed(2).replace("-0.00", "0.00") : "–");

/** 42 % */
export const percent = (value) => (Number.isFinite(value) ? `${Math.round(value * 100)} %` : "–");

/** 3 Mar 2025, 08:02, in the time of the reader */
export function time(text) {
  const date = new Date(text ?? NaN);
  return Number.isNaN(date.getTime()) ? "–" : moment.format(date);
}

/** 3 Mar */
export const day = (text) => dayOnly.format(new Date(`${text}T00:00:00Z`));

/** one message, 2 messages */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** camelCase and snake_case as words */
export const words = (name) => name.replace(/([a-z])([A-Z])/g, "$1 $2").replaceAll("_", " ").toLowerCase();
