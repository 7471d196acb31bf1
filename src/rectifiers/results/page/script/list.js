// The list of runs: filtered, sorted, a page at a time.
const A_PAGE = 25;
const FILTERS = ["activation", "init", "model", "data", "experiment"];
const COLUMNS = [
  { key: "run", title: "run", of: (i) => ROWS.run[i], show: (i) => [runButton(i), el("span", { class: "spread" }, whose(i))] },
  { key: "compare", title: "compare", show: (i) => markButton(i) },
  { key: "error", title: "top-1 error, %", of: (i) => chosen(i)?.error, number: true, show: (i) => errorCell(i) },
  { key: "top5", title: "top-5 error, %", of: (i) => chosen(i)?.top5, number: true, show: (i) => fixed(chosen(i)?.top5) },
  { key: "nll", title: "NLL", of: (i) => chosen(i)?.nll, number: true, show: (i) => fixed(chosen(i)?.nll, 3) },
  ...["activation", "init", "model", "data"].map((key) => ({ key, title: key, of: (i) => group(key, i) })),
  { key: "seed", title: "seed", of: (i) => ROWS.seed[i], number: true },
  { key: "epochs", title: "epochs", of: (i) => ROWS.epochs[i], number: true },
  { key: "experiment", title: "experiment", of: (i) => group("experiment", i) },
  ...["code", "machine"].map((key) => ({ key, title: key, of: (i) => at(ROWS[key], i) })),
];

const whose = (i) => at(ROWS.whose, i);
const protocol = () => (Object.hasOwn(ROWS.protocols, state.protocol ?? "") ? state.protocol : ROWS.usual);
const chosen = (i) => result(protocol(), i);

const OWN_FIRST = ["yours", "committed"].flatMap((side) => [...Array(COUNT).keys()].filter((i) => whose(i) === side));

function errorCell(i) {
  const found = chosen(i);
  if (!found) return at(ROWS.status, i) === "finished" ? "-" : at(ROWS.status, i);
  return [el("span", { class: "value" }, fixed(found.error)), el("span", { class: "spread" }, spread(found.interval))];
}

function fitting() {
  const words = (state.find ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const runs = [];
  for (const i of OWN_FIRST) {
    if (state.whose && whose(i) !== state.whose) continue;
    if (state.protocol && !RESULTS[protocol()].has(i)) continue;
    if (FILTERS.some((key) => state[key] && (group(key, i) ?? "none") !== state[key])) continue;
    const text = words.length ? [ROWS.run[i], ...Object.keys(ROWS.groups).map((key) => group(key, i))].join(" ").toLowerCase() : "";
    if (words.every((word) => text.includes(word))) runs.push(i);
  }
  const column = COLUMNS.find((each) => each.of && each.key === state.sort?.replace(/^-/, ""));
  if (!column) return runs;
  const sign = state.sort.startsWith("-") ? -1 : 1;
  const values = new Map(runs.map((i) => [i, column.of(i)]));
  const compare = (a, b) => (column.number ? a - b : String(a).localeCompare(String(b), "en"));
  return runs.sort((i, j) => {
    const [a, b] = [values.get(i), values.get(j)];
    if (a == null || b == null) return (a == null) - (b == null); // missing values stay last in both directions
    return sign * compare(a, b) || i - j;
  });
}

function sortBy(key) {
  choose({ sort: state.sort === key ? `-${key}` : key });
}

function makeFilters() {
  const find = el("input", { type: "search", id: "find", on: { input: () => choose({ find: find.value }) } });
  const fields = FILTERS.map((key) => {
    const values = ROWS.groups[key].values.map((value) => value ?? "none").sort((a, b) => a.localeCompare(b, "en"));
    return select(key, key, [["", "all"], ...values.map((value) => [value, value])]);
  });
  const protocols = Object.keys(ROWS.protocols).map((name) => [name, name]);
  byId("filters").append(el("label", {}, "find", find),
    select("whose", "whose", [["", "all"], ["yours", "yours"], ["committed", "committed"]]), ...fields,
    select("protocol", "tested by", [["", `any (shown: ${ROWS.usual ?? "none"})`], ...protocols]),
    el("button", { type: "button", id: "reset", on: { click: () => choose(Object.fromEntries([...FILTERS, "find", "whose", "protocol", "sort"].map((key) => [key, null]))) } }, "Reset"));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("previous").addEventListener("click", () => choose({ page: pageNumber() - 1 }));
  byId("next").addEventListener("click", () => choose({ page: pageNumber() + 1 }));
}

function select(key, title, options) {
  const field = el("select", { id: `filter-${key}`, on: { change: () => choose({ [key]: field.value }) } },
    options.map(([value, text]) => el("option", { value }, text)));
  return el("label", {}, title, field);
}

function makeHead() {
  const heads = COLUMNS.map((column) => (column.of
    ? el("th", { scope: "col", "data-key": column.key, class: column.number ? null : "left" },
      el("button", { type: "button", class: "sort", on: { click: () => sortBy(column.key) } }, column.title))
    : el("th", { scope: "col", class: "left" }, el("span", { class: "plain" }, column.title))));
  byId("list").tHead.append(el("tr", {}, heads));
}

const pageNumber = () => Math.max(1, Number.parseInt(state.page ?? "1", 10) || 1);

const sideOf = (name) => SIDES.find((side) => state[side] === name);
const freeSide = () => SIDES.find((side) => !state[side]);

function mark(name) {
  const side = sideOf(name);
  if (side ?? freeSide()) choose({ [side ?? freeSide()]: side ? null : name });
}

function markButton(i) {
  const name = ROWS.run[i], side = sideOf(name);
  return el("button", {
    type: "button", class: "mark", "aria-pressed": String(side !== undefined), "data-mark": name,
    "aria-label": `Compare run ${name}`, on: { click: () => mark(name) },
  }, side?.toUpperCase() ?? "+");
}

function line(i) {
  return el("tr", {}, COLUMNS.map((column, c) => {
    const value = (column.show ?? column.of)(i) ?? "-";
    return el(c ? "td" : "th", { class: column.number ? null : "left", scope: c ? null : "row" }, value);
  }));
}

function showList() {
  const runs = fitting(), pages = Math.max(1, Math.ceil(runs.length / A_PAGE)), now = Math.min(pageNumber(), pages);
  const shown = runs.slice((now - 1) * A_PAGE, now * A_PAGE);
  const focused = document.activeElement?.dataset?.mark;
  byId("list").tBodies[0].replaceChildren(...shown.map(line));
  if (focused) byId("list").querySelector(`[data-mark="${CSS.escape(focused)}"]`)?.focus();
  for (const head of byId("list").tHead.querySelectorAll("[data-key]")) {
    const { key } = head.dataset;
    if (state.sort === key || state.sort === `-${key}`) head.setAttribute("aria-sort", state.sort === key ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
  for (const key of [...FILTERS, "whose", "protocol"]) byId(`filter-${key}`).value = state[key] ?? "";
  if (byId("find").value !== (state.find ?? "")) byId("find").value = state.find ?? "";
  byId("count").textContent = `${many(runs.length, "run")}${runs.length < COUNT ? ` of ${grouped(COUNT)}` : ""}; errors by ${protocol() ?? "no protocol"}`;
  byId("page-number").textContent = `page ${grouped(now)} of ${grouped(pages)}`;
  byId("previous").disabled = now <= 1;
  byId("next").disabled = now >= pages;
}
