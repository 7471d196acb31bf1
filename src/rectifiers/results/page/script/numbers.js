// The statistics of results/statistics.py, digit for digit; a test compares the two.
const percent = (errors, images) => (100 * errors) / images;

function wilson(errors, images, z) {
  const rate = errors / images, z2 = (z * z) / images;
  const centre = (rate + z2 / 2) / (1 + z2);
  const half = (z / (1 + z2)) * Math.sqrt((rate * (1 - rate)) / images + z2 / (4 * images));
  return [errors === 0 ? 0 : 100 * (centre - half), errors === images ? 100 : 100 * (centre + half)];
}

// Two-sided exact p of McNemar's test: each of the n images that one alone has right is a fair coin.
function mcnemar(first, second) {
  const n = first + second, least = Math.min(first, second);
  let log = -n * Math.LN2;
  const logs = [log];
  for (let k = 1; k <= least; k++) logs.push((log += Math.log((n - k + 1) / k)));
  const most = logs.at(-1); // the largest, since least <= n / 2
  return Math.min(1, 2 * Math.exp(most) * logs.reduce((sum, each) => sum + Math.exp(each - most), 0));
}

const fixed = (value, digits = 2) => (value == null ? "-" : value.toFixed(digits));
const grouped = (value) => (value == null ? "-" : value.toLocaleString("en-US"));
const small = (p) => (p >= 0.001 ? String(Number(p.toPrecision(2))) : p.toExponential(1));
const spread = ([low, high]) => `${fixed(low)} to ${fixed(high)}`;
const signed = (value) => (value >= 0 ? "+" : "−") + Math.abs(value).toFixed(2);
const many = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;
const asText = (value) => (value == null ? "null" : typeof value === "string" ? value : JSON.stringify(value));
