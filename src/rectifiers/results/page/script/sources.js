// Where a number comes from: its runs, and each run's command, record and provenance, in one dialog.
const SOURCE = byId("source");

function showDialog(title, ...content) {
  const close = el("button", { type: "button", on: { click: () => SOURCE.close() } }, "Close");
  byId("source-content").replaceChildren(
    el("div", { class: "bar" }, el("h2", { id: "source-title", tabindex: "-1" }, title), close), el("div", {}, content));
  if (!SOURCE.open) SOURCE.showModal();
  SOURCE.scrollTop = 0;
  byId("source-title").focus();
}

SOURCE.addEventListener("close", () => choose({ run: null }));

const runButton = (i) => el("button", { type: "button", class: "quiet run", on: { click: () => choose({ run: ROWS.run[i] }) } }, ROWS.run[i]);

async function showRuns(title, names) {
  const data = await details();
  const runs = names.map((name) => PLACE.get(name + COMMITTED) ?? PLACE.get(name)).filter((i) => i !== undefined); // of committed records
  const rows = runs.map((i) => [runButton(i), ...["activation", "init", "data"].map((key) => group(key, i) ?? "-"), asText(ROWS.seed[i]),
    at(ROWS.code, i), at(ROWS.machine, i), String(at(data.provenance.git_sha ?? { values: ["-"], at: runs }, i)).slice(0, 7)]);
  const commands = runs.map((i) => data.command[i]).filter(Boolean);
  showDialog(title, table("Runs", ["run", "activation", "init", "data", "seed", "code", "machine", "commit"], rows, { level: "h3" }),
    el("h3", {}, "Commands"), command(commands.join("\n")));
}

function list(pairs) {
  return el("dl", { class: "facts-list" }, pairs.filter(isThere).flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, asText(value))]));
}

async function showRun(name) {
  const i = PLACE.get(name);
  if (i === undefined) return;
  const data = await details();
  if (state.run !== name) return;
  const results = testedBy(i).map((protocol) => {
    const r = result(protocol, i);
    return [protocol, fixed(r.error), spread(r.interval), fixed(r.top5), grouped(r.images), asText(r.nll), asText(r.ece), grouped(r.cost), r.code ?? "-"];
  });
  const reason = at(ROWS.exclusion_reason, i);
  const compare = el("button", { type: "button", on: { click: () => { SOURCE.close(); mark(name); } } }, sideOf(name) ? "No longer compare" : "Compare");
  const slopes = Object.entries(data.slopes[i]);
  showDialog(`Run ${name}`,
    el("p", { class: "note" }, reason ? `The run is in none of the paper's tables: ${reason}.` : "The run is in the tables."),
    el("p", {}, `Code ${at(ROWS.code, i)} on ${at(ROWS.machine, i)}.`),
    el("p", {}, compare),
    el("h3", {}, "Command"), data.command[i] ? command(data.command[i]) : el("p", {}, "Today's configuration no longer makes this run; check out the run's commit."),
    el("h3", {}, "Record"), el("p", {}, el("a", { href: link(i) }, path(i))),
    results.length ? table("Results", ["protocol", "top-1 error, %", "95 % interval", "top-5 error, %", "images", "NLL", "calibration error", "multiply-adds", "code"], results, { level: "h3" }) : null,
    ...(slopes.length ? [el("h3", {}, "Learned slopes (means)"), list(slopes.map(([layer, mean]) => [layer, fixed(mean, 3)]))] : []),
    el("h3", {}, "Training"), list(leaves(data.training, i)),
    el("h3", {}, "Provenance"), list(leaves(data.provenance, i)),
    el("h3", {}, "Configuration"), list(leaves(data.science, i)));
}
