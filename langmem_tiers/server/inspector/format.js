// Formatting of numbers, times and names.

const integers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compactNumbers = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const dateTimes = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** 12,345 */
export const count = (value) => (Number.isFinite(value) ? integers.format(value) : "–");

/** 12.3k, for axes */
export const compactCount = (value) => compactNumbers.format(value).toLowerCase();

/** 0.42 */
export const score = (value) => (Number.isFinite(value) ? value.toFixed(2).replace("-0.00", "0.00") : "–");

/** 42 % */
export const percent = (value) => (Number.isFinite(value) ? `${Math.round(value * 100)} %` : "–");

/** 3 Mar 2025, 08:02, in the time zone of the browser */
export function time(text) {
  const date = new Date(text ?? NaN);
  return Number.isNaN(date.getTime()) ? "–" : dateTimes.format(date);
}

/** 3 Mar */
export const day = (text) => days.format(new Date(`${text}T00:00:00Z`));

/** 1 message, 2 messages */
export const plural = (number, singular, many = `${singular}s`) => `${count(number)} ${number === 1 ? singular : many}`;

/** Convert camelCase and snake_case to separate words. */
export const words = (name) => name.replace(/([a-z])([A-Z])/g, "$1 $2").replaceAll("_", " ").toLowerCase();
