// The columns of all runs (at once), and their details (unpacked when first asked for).
const ROWS = JSON.parse(byId("rows").textContent);
const COUNT = ROWS.run.length;
const PLACE = new Map(ROWS.run.map((name, i) => [name, i]));
const at = (column, i) => column.values[column.at[i]];
const group = (name, i) => at(ROWS.groups[name], i);

const RESULTS = Object.fromEntries(Object.entries(ROWS.protocols).map(([name, columns]) => [
  name, new Map(columns.at.map((run, i) => [run, i])),
]));

function result(protocol, run) {
  const i = protocol == null ? undefined : RESULTS[protocol].get(run);
  if (i === undefined) return null;
  const columns = ROWS.protocols[protocol], images = at(columns.num_images, i), errors = columns.errors[i];
  return {
    images, errors, error: percent(errors, images), interval: wilson(errors, images, ROWS.z),
    top5: columns.top5[i] == null ? null : percent(columns.top5[i], images),
    nll: columns.nll[i], ece: columns.ece[i], brier: columns.brier[i],
    cost: at(columns.cost, i), code: at(columns.code, i), settings: JSON.stringify(at(columns.settings, i)),
  };
}

const testedBy = (run) => Object.keys(RESULTS).filter((name) => RESULTS[name].has(run));
const COMMITTED = " (committed)"; // follows the name of a committed record whose run is here too
const link = (i) => at(ROWS.link, i).replaceAll("{}", ROWS.run[i].replace(COMMITTED, ""));
const path = (i) => at(ROWS.path, i).replaceAll("{}", ROWS.run[i].replace(COMMITTED, ""));

let unpacking = null;
function details() {
  unpacking ??= (async () => {
    const bytes = Uint8Array.from(atob(byId("packed").textContent), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  })();
  return unpacking;
}

const leaves = (columns, i) => Object.entries(columns).map(([key, column]) => [key, at(column, i)]);
const isThere = ([, value]) => value !== "(not there)";

// Which images a run classified correctly under a protocol, in the order of the split; null where that is not kept or not embedded.
function correct(data, protocol, i) {
  const digits = data.correct[protocol]?.[ROWS.run[i]];
  if (digits === undefined) return null;
  const { images } = result(protocol, i);
  return Array.from({ length: images }, (_, k) => (parseInt(digits[k >> 2], 16) >> (3 - (k & 3))) & 1);
}
