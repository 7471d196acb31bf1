// Runs side by side: configuration, results with paired tests against the first, curves on one axis, classes and images.
const MOST_IMAGES = 200;

function find(text) {
  if (!text) return null;
  if (PLACE.has(text)) return PLACE.get(text);
  const fit = ROWS.run.filter((name) => name.startsWith(text) && !name.endsWith(COMMITTED));
  return fit.length === 1 ? PLACE.get(fit[0]) : null;
}

function makeCompared() {
  const describe = (i) => ["experiment", "model", "activation", "init", "data"].map((key) => group(key, i)).filter(Boolean).join(" ");
  const field = (side) => {
    const input = el("input", { id: `run-${side}`, list: "run-names", autocomplete: "off", spellcheck: "false" });
    input.addEventListener("focus", () => { // thousands of names, added only when needed
      if (byId("run-names").childElementCount) return;
      byId("run-names").append(...ROWS.run.map((name, i) => el("option", { value: name }, `${describe(i)} seed ${asText(ROWS.seed[i])}`)));
    });
    input.addEventListener("change", () => choose({ [side]: ROWS.run[find(input.value.trim())] ?? input.value.trim() }));
    return el("label", {}, side.toUpperCase(), input);
  };
  const clear = el("button", { type: "button", on: { click: () => choose(Object.fromEntries(SIDES.map((side) => [side, null]))) } }, "Clear");
  byId("compared").append(...SIDES.map(field), clear);
  byId("compared").addEventListener("submit", (event) => event.preventDefault());
}

// The fields of the runs that are compared, and one for the next.
function showFields() {
  for (const side of SIDES) {
    const input = byId(`run-${side}`);
    if (document.activeElement !== input) input.value = state[side] ?? "";
    input.parentElement.hidden = !state[side] && side !== "a" && side !== "b" && side !== freeSide();
  }
}

// runs: [{ side: "A", i }], the first of which the others are held against.
function apart(columns, runs) {
  return Object.entries(columns).map(([key, column]) => [key, ...runs.map(({ i }) => at(column, i))])
    .filter(([, ...values]) => new Set(values.map((value) => JSON.stringify(value))).size > 1);
}

function difference(title, columns, runs) {
  const lines = apart(columns, runs);
  const head = ["key", ...runs.map(({ side, i }) => `${side}: ${ROWS.run[i]}`)];
  if (!lines.length) return el("div", {}, el("h3", {}, title), el("p", { class: "note" }, "No difference."));
  return table(title, head, lines.map(([key, ...values]) => [key, ...values.map(asText)]), { level: "h3", wraps: true });
}

// (right in A only, right in B only), or the reason why there is no such comparison.
function paired(data, name, a, b) {
  if (JSON.stringify(at(data.provenance.data, a)) !== JSON.stringify(at(data.provenance.data, b))) return "other images";
  const ours = correct(data, name, a), theirs = correct(data, name, b);
  if (!ours || !theirs) return "the images that were right are not kept here";
  if (ours.length !== theirs.length) return "other images";
  let first = 0, second = 0;
  ours.forEach((right, i) => { first += right && !theirs[i] ? 1 : 0; second += theirs[i] && !right ? 1 : 0; });
  return [first, second];
}

function resultsTable(data, runs) {
  const [first] = runs;
  const rows = Object.keys(RESULTS).flatMap((name) => {
    const tested = runs.filter(({ i }) => RESULTS[name].has(i)), reference = result(name, first.i);
    return tested.length < 2 ? [] : tested.map(({ side, i }) => {
      const own = result(name, i);
      const cells = [name, side, [el("span", { class: "value" }, fixed(own.error)), el("span", { class: "spread" }, spread(own.interval))], fixed(own.top5)];
      if (i === first.i || !reference) return [...cells, "-", "-", "-"];
      const pair = paired(data, name, first.i, i), other = own.settings === reference.settings ? "" : " (other settings)";
      const test = typeof pair === "string" ? [pair, "-"] : [`${grouped(pair[0])} / ${grouped(pair[1])}`, small(mcnemar(...pair))];
      return [...cells, signed(own.error - reference.error) + other, ...test];
    });
  });
  const head = ["protocol", "run", "top-1 error, %", "top-5 error, %", `minus ${first.side}`, `right in ${first.side} only / in it only`, "McNemar p"];
  return rows.length ? table("Results", head, rows, { level: "h3" }) : el("p", { class: "note" }, "No protocol has tested two of them.");
}

function curvesOf(data, runs) {
  const titles = { "val/top1_error_pct": "top-1 error, %", "val/top5_error_pct": "top-5 error, %", train_loss: "training loss" };
  const names = runs.map(({ i }) => ROWS.run[i]).join(", ");
  return Object.entries(titles).flatMap(([key, title]) => {
    const series = runs.map(({ side, i }) => {
      const y = data.curves[key][i], none = y.map(() => null);
      return { name: `${side}: ${ROWS.run[i]} (${group("activation", i) ?? "ensemble"}, ${group("init", i) ?? "-"}, seed ${asText(ROWS.seed[i])})`, x: y.map((_, e) => e + 1), y, low: none, high: none, at: [] };
    });
    if (!series.some((each) => each.x.length > 1)) return [];
    return [{ title, description: `The ${title} of runs ${names} after each epoch`, x: "epoch", y: title, series, scale: "linear", band: false }];
  });
}

function imagesPart(data, runs) {
  const [first, ...others] = runs;
  const both = ({ i }) => testedBy(first.i).filter((name) => Array.isArray(paired(data, name, first.i, i)));
  const pairs = others.flatMap((other) => both(other).map((name) => [name, other]));
  if (!pairs.length) return el("div", {}, el("h3", {}, "Images"), el("p", { class: "note" }, `No protocol keeps, for ${first.side} and another one and on the same images, which images were right.`));
  const shown = el("div", {});
  const usual = pairs.findIndex(([name]) => name === protocol());
  const field = el("select", { id: "images-protocol", on: { change: () => fill() } },
    pairs.map(([name, { side }], k) => el("option", { value: k, selected: k === Math.max(0, usual) }, others.length > 1 ? `${name}, ${first.side} and ${side}` : name)));
  const fill = () => {
    const [name, other] = pairs[Number(field.value)];
    shown.replaceChildren(...imagesBy(data, name, first, other));
  };
  fill();
  return el("div", {}, el("h3", {}, "Images on which two disagree"), el("div", { class: "filters" }, el("label", {}, "tested by", field)), shown);
}

function imagesBy(data, name, one, two) {
  const a = one.i, b = two.i;
  const ours = correct(data, name, a), theirs = correct(data, name, b);
  const classes = data.labels[at(data.provenance.data, a)];
  const label = (c) => classes?.names[c] ?? `class ${c}`;
  const disagreed = ours.map((right, i) => [i, right, theirs[i]]).filter(([, one, other]) => one !== other);
  const answer = (i, image, right) => {
    const predicted = data.predictions[name]?.[ROWS.run[i]];
    return predicted ? `${label(predicted[image])}${right ? "" : " (wrong)"}` : right ? "right" : "wrong";
  };
  const rows = disagreed.map(([image, one, other]) => [grouped(image), ...(classes ? [label(classes.labels[image])] : []), answer(a, image, one), answer(b, image, other)]);
  const head = ["image", ...(classes ? ["class"] : []), one.side, two.side];
  const parts = [];
  if (classes) {
    const count = new Map();
    classes.labels.forEach((c, i) => {
      const each = count.get(c) ?? [0, 0, 0];
      count.set(c, [each[0] + 1, each[1] + !ours[i], each[2] + !theirs[i]]);
    });
    const by = [...count].sort(([c], [d]) => c - d).map(([c, [n, one, other]]) => [label(c), grouped(n), fixed(percent(one, n)), fixed(percent(other, n)), signed(percent(other - one, n))]);
    parts.push(table("Errors by class", ["class", "images", `${one.side}: error, %`, `${two.side}: error, %`, `${two.side} minus ${one.side}`], by));
  } else {
    parts.push(el("p", { class: "note" }, "The classes of these images are known where a run keeps its scores (evaluation.keep_scores=true)."));
  }
  const first = rows.slice(0, MOST_IMAGES);
  const shown = (part) => table(`${many(rows.length, "image")}, by index in the test split`, head, part, { tall: true });
  const listed = shown(first);
  if (rows.length > first.length) {
    const more = el("button", { type: "button", on: { click: () => listed.replaceWith(shown(rows)) } }, `Show all ${grouped(rows.length)}`);
    more.addEventListener("click", () => more.remove());
    parts.push(listed, more);
  } else parts.push(listed);
  return parts;
}

let compared = "";
async function showComparison() {
  showFields();
  const marked = SIDES.filter((side) => state[side]).map((side) => ({ side: side.toUpperCase(), i: find(state[side]) }));
  const runs = marked.filter(({ i }) => i !== null), wanted = JSON.stringify(marked);
  if (wanted === compared) return;
  compared = wanted;
  const missing = SIDES.filter((side) => state[side] && find(state[side]) === null).map((side) => state[side]);
  const unknown = missing.length ? `No run, or more than one, is named ${missing.join(", ")}.` : "";
  const say = (text) => { byId("compare-status").textContent = text; };
  if (runs.length < 2) {
    byId("comparison").replaceChildren();
    say(unknown || "Mark two runs or more in the list, or give their names or the beginnings of their names.");
    return;
  }
  const data = await details();
  if (compared !== wanted) return;
  const charts = curvesOf(data, runs);
  const figures = charts.map((chart) => el("figure", {}, el("figcaption", {}, el("h4", {}, chart.title))));
  byId("comparison").replaceChildren(
    difference("Configuration", { ...ROWS.groups, ...data.science }, runs), resultsTable(data, runs),
    figures.length ? el("div", {}, el("h3", {}, "Curves"), el("div", { class: "charts" }, figures)) : el("p", { class: "note" }, "No curves: none has more than one epoch."),
    imagesPart(data, runs), difference("Training", data.training, runs), difference("Provenance", data.provenance, runs));
  const named = runs.map(({ side, i }) => `${side}: ${ROWS.run[i]}`).join(", ");
  say(`${named}. ${many(apart(data.science, runs).length, "key")} of their configurations differ. ${unknown}`.trim());
  figures.forEach((figure, i) => draw(figure, charts[i]));
}
