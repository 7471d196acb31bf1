// Two runs side by side: configuration, results with paired tests, curves on one axis, classes and images.
const MOST_IMAGES = 200;

function find(text) {
  if (!text) return null;
  if (PLACE.has(text)) return PLACE.get(text);
  const fit = ROWS.run.filter((name) => name.startsWith(text) && !name.endsWith(COMMITTED));
  return fit.length === 1 ? PLACE.get(fit[0]) : null;
}

function makePair() {
  const describe = (i) => ["experiment", "model", "activation", "init", "data"].map((key) => group(key, i)).filter(Boolean).join(" ");
  for (const side of ["a", "b"]) {
    const field = byId(`run-${side}`);
    field.addEventListener("focus", () => { // thousands of names, added only when needed
      if (byId("run-names").childElementCount) return;
      byId("run-names").append(...ROWS.run.map((name, i) => el("option", { value: name }, `${describe(i)} seed ${asText(ROWS.seed[i])}`)));
    });
    field.addEventListener("change", () => choose({ [side]: find(field.value.trim()) === null ? field.value.trim() : ROWS.run[find(field.value.trim())] }));
  }
  byId("swap").addEventListener("click", () => choose({ a: state.b ?? null, b: state.a ?? null }));
  byId("pair").addEventListener("submit", (event) => event.preventDefault());
}

function apart(columns, a, b) {
  return Object.entries(columns).map(([key, column]) => [key, at(column, a), at(column, b)])
    .filter(([, one, other]) => JSON.stringify(one) !== JSON.stringify(other));
}

function difference(title, columns, a, b) {
  const pairs = apart(columns, a, b);
  const head = ["key", `A: ${ROWS.run[a]}`, `B: ${ROWS.run[b]}`];
  if (!pairs.length) return el("div", {}, el("h3", {}, title), el("p", { class: "note" }, "No difference."));
  return table(title, head, pairs.map(([key, one, other]) => [key, asText(one), asText(other)]), { level: "h3", wraps: true });
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

function resultsTable(data, a, b) {
  const both = testedBy(a).filter((name) => RESULTS[name].has(b));
  const cell = (r) => [el("span", { class: "value" }, fixed(r.error)), el("span", { class: "spread" }, spread(r.interval))];
  const rows = both.map((name) => {
    const [one, other] = [result(name, a), result(name, b)], pair = paired(data, name, a, b);
    const test = typeof pair === "string" ? [pair, "-"] : [`${grouped(pair[0])} / ${grouped(pair[1])}`, small(mcnemar(...pair))];
    return [one.settings === other.settings ? name : `${name} (other settings)`, cell(one), cell(other), signed(other.error - one.error), fixed(one.top5), fixed(other.top5), ...test];
  });
  const head = ["protocol", "A: top-1 error, %", "B: top-1 error, %", "B minus A", "A: top-5, %", "B: top-5, %", "right in A only / B only", "McNemar p"];
  return rows.length ? table("Results", head, rows, { level: "h3" }) : el("p", { class: "note" }, "No protocol has tested both.");
}

function curvesOf(data, a, b) {
  const titles = { "val/top1_error_pct": "top-1 error, %", "val/top5_error_pct": "top-5 error, %", train_loss: "training loss" };
  return Object.entries(titles).flatMap(([key, title]) => {
    const series = [["A", a], ["B", b]].map(([side, i]) => {
      const y = data.curves[key][i], none = y.map(() => null);
      return { name: `${side}: ${ROWS.run[i]} (${group("activation", i) ?? "ensemble"}, ${group("init", i) ?? "-"}, seed ${asText(ROWS.seed[i])})`, x: y.map((_, e) => e + 1), y, low: none, high: none, at: [] };
    });
    if (!series.some((each) => each.x.length > 1)) return [];
    return [{ title, description: `The ${title} of runs ${ROWS.run[a]} and ${ROWS.run[b]} after each epoch`, x: "epoch", y: title, series, scale: "linear", band: false }];
  });
}

function imagesPart(data, a, b) {
  const both = testedBy(a).filter((name) => Array.isArray(paired(data, name, a, b)));
  if (!both.length) return el("div", {}, el("h3", {}, "Images"), el("p", { class: "note" }, "No protocol keeps, for both and on the same images, which images were right."));
  const shown = el("div", {});
  const field = el("select", { id: "images-protocol", on: { change: () => fill() } }, both.map((name) => el("option", { value: name, selected: name === protocol() }, name)));
  const fill = () => shown.replaceChildren(...imagesBy(data, field.value, a, b));
  fill();
  return el("div", {}, el("h3", {}, "Images on which the two disagree"), el("div", { class: "filters" }, el("label", {}, "tested by", field)), shown);
}

function imagesBy(data, name, a, b) {
  const ours = correct(data, name, a), theirs = correct(data, name, b);
  const classes = data.labels[at(data.provenance.data, a)];
  const label = (c) => classes?.names[c] ?? `class ${c}`;
  const disagreed = ours.map((right, i) => [i, right, theirs[i]]).filter(([, one, other]) => one !== other);
  const answer = (i, image, right) => {
    const predicted = data.predictions[name]?.[ROWS.run[i]];
    return predicted ? `${label(predicted[image])}${right ? "" : " (wrong)"}` : right ? "right" : "wrong";
  };
  const rows = disagreed.map(([image, one, other]) => [grouped(image), ...(classes ? [label(classes.labels[image])] : []), answer(a, image, one), answer(b, image, other)]);
  const head = ["image", ...(classes ? ["class"] : []), "A", "B"];
  const parts = [];
  if (classes) {
    const count = new Map();
    classes.labels.forEach((c, i) => {
      const each = count.get(c) ?? [0, 0, 0];
      count.set(c, [each[0] + 1, each[1] + !ours[i], each[2] + !theirs[i]]);
    });
    const by = [...count].sort(([c], [d]) => c - d).map(([c, [n, one, other]]) => [label(c), grouped(n), fixed(percent(one, n)), fixed(percent(other, n)), signed(percent(other - one, n))]);
    parts.push(table("Errors by class", ["class", "images", "A: error, %", "B: error, %", "B minus A"], by));
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
  const a = find(state.a), b = find(state.b);
  for (const side of ["a", "b"]) if (document.activeElement !== byId(`run-${side}`)) byId(`run-${side}`).value = state[side] ?? "";
  const wanted = `${a} ${b}`;
  if (wanted === compared) return;
  compared = wanted;
  const missing = ["a", "b"].filter((side) => state[side] && find(state[side]) === null);
  const say = (text) => { byId("compare-status").textContent = text; };
  if (a === null || b === null) {
    byId("comparison").replaceChildren();
    say(missing.length ? `No run, or more than one, is named ${missing.map((side) => state[side]).join(", ")}.` : "Mark two runs in the list, or give their names or the beginnings of their names.");
    return;
  }
  const data = await details();
  if (compared !== wanted) return;
  const charts = curvesOf(data, a, b);
  const figures = charts.map((chart) => el("figure", {}, el("figcaption", {}, el("h4", {}, chart.title))));
  byId("comparison").replaceChildren(
    difference("Configuration", { ...ROWS.groups, ...data.science }, a, b), resultsTable(data, a, b),
    figures.length ? el("div", {}, el("h3", {}, "Curves"), el("div", { class: "charts" }, figures)) : el("p", { class: "note" }, "No curves: neither has more than one epoch."),
    imagesPart(data, a, b), difference("Training", data.training, a, b), difference("Provenance", data.provenance, a, b));
  say(`A: ${ROWS.run[a]}, B: ${ROWS.run[b]}. ${many(apart(data.science, a, b).length, "key")} of their configurations differ.`);
  figures.forEach((figure, i) => draw(figure, charts[i]));
}
