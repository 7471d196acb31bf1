// Charts by Vega-Lite, as SVG, through Vega's interpreter: the page's policy allows no eval. Colours are the stylesheet's.
const COLOURS = [1, 2, 3, 4, 5, 6, 7, 8].map((i) => `var(--s${i})`);
const DASHES = [[1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [5, 2], [1, 3], [12, 3], [3, 1]];
const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"];
const TIP = el("div", { class: "tip", hidden: true });

const FONT = "system-ui, sans-serif"; // by name, because Vega measures labels in it

const CONFIG = {
  background: "transparent", font: FONT, view: { stroke: null }, padding: { left: 0, right: 4, top: 4, bottom: 0 },
  axis: {
    labelColor: "var(--muted)", titleColor: "var(--muted)", gridColor: "var(--line)", domainColor: "var(--muted)",
    tickColor: "var(--muted)", labelFontSize: 11.5, titleFontSize: 11.5, titleFontWeight: 500, labelFont: FONT,
    titleFont: FONT, gridOpacity: 0.7, labelLimit: 110,
  },
};

// Many names stand upright, and every second one is left out where even so they would meet.
function namesAxis(chart) {
  const names = new Set(chart.series.flatMap((series) => series.x)).size;
  return { grid: false, ...(names > 16 ? { labelAngle: -90, labelOverlap: "parity" } : { labelAngle: -50 }) };
}

// At most eight whole numbers: Vega's own ticks of three epochs are halves too.
function wholeTicks(places) {
  const low = Math.min(...places), high = Math.max(...places);
  let step = 1;
  while ((high - low) / step > 7) step *= String(step).startsWith("2") ? 2.5 : 2;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
}

function specification(chart) {
  const values = chart.series.flatMap((series, s) => series.x.map((x, i) => ({
    s, x, y: series.y[i], low: series.low[i], high: series.high[i], at: series.at[i] ?? "", tip: tipText(chart, series, i),
  })));
  const names = chart.series.map((_, s) => s);
  const several = chart.series.some((series) => series.low.some((low) => low != null));
  const type = chart.scale === "names" ? "ordinal" : "quantitative";
  const x = {
    field: "x", type, title: chart.x, sort: null,
    axis: type === "ordinal" ? namesAxis(chart) : chart.scale === "log" ? { grid: false, tickCount: 6, format: "~s" } : { grid: false, values: wholeTicks(values.map((value) => value.x)), format: "d" },
    scale: chart.scale === "log" ? { type: "log", nice: false, padding: 18 } : type === "ordinal" ? {} : { zero: false, nice: false },
  };
  const above = values.every((value) => value.y == null || value.y >= 0);
  const y = { field: "y", type: "quantitative", title: null, scale: above ? { zero: true, nice: true } : { zero: false }, axis: { tickCount: 5 } };
  const color = { field: "s", type: "nominal", scale: { domain: names, range: COLOURS }, legend: null };
  const dash = { field: "s", type: "nominal", scale: { domain: names, range: DASHES }, legend: null };
  const shape = { field: "s", type: "nominal", scale: { domain: names, range: SHAPES }, legend: null };
  const between = { x, y: { ...y, field: "low" }, y2: { field: "high" } };
  const withInterval = { transform: [{ filter: "datum.low != null" }] };
  const layer = [];
  if (several && chart.band) layer.push({ ...withInterval, mark: { type: "area", opacity: 0.16, aria: false, clip: true }, encoding: { ...between, fill: color, detail: { field: "s" } } });
  if (several && !chart.band) layer.push({ ...withInterval, mark: { type: "rule", strokeWidth: 1.5, opacity: 0.75, aria: false, clip: true }, encoding: { ...between, stroke: color } });
  layer.push({ mark: { type: "line", strokeWidth: 1.75, aria: false, opacity: chart.scale === "log" ? 0.45 : 1, clip: true }, encoding: { x, y, stroke: color, strokeDash: dash, detail: { field: "s" }, order: { field: "x" } } });
  if (type === "ordinal") delete layer.at(-1).encoding.order;
  const few = chart.series.every((series) => series.x.length <= 30);
  layer.push({
    mark: { type: "point", filled: true, size: few ? 55 : 50, opacity: few ? 1 : 0, aria: false },
    encoding: { x, y, fill: color, shape, tooltip: { field: "tip" } },
  });
  if (values.some((value) => value.at)) {
    layer.push({
      transform: [{ aggregate: [{ op: "count", as: "n" }], groupby: ["x", "at"] }],
      mark: { type: "text", angle: 325, align: "left", baseline: "middle", fontSize: 11, fill: "var(--muted)", font: FONT, aria: false },
      encoding: { x, y: { value: -8 }, text: { field: "at" } },
    });
  }
  return { $schema: "https://vega.github.io/schema/vega-lite/v6.json", description: chart.description, width: "container", height: values.some((value) => value.at) ? 330 : 260, autosize: { type: "fit", contains: "padding" }, data: { values }, layer, config: CONFIG };
}

function numbersOf(series, i) {
  const [y, low, high] = [series.y[i], series.low[i], series.high[i]].map((value) => (value == null ? null : Number(value.toPrecision(4))));
  return low == null ? `${y}` : `${y} (${low} to ${high})`;
}

function tipText(chart, series, i) {
  const where = series.at[i] || `${chart.x} ${typeof series.x[i] === "number" ? grouped(series.x[i]) : series.x[i]}`;
  return `${series.name}\n${where}\n${chart.y}: ${numbersOf(series, i)}`;
}

function tip(handler, event, item, value) {
  TIP.hidden = value == null;
  if (value == null) return;
  TIP.textContent = value;
  const box = TIP.getBoundingClientRect();
  TIP.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 8))}px`;
  TIP.style.top = `${event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16}px`;
}

function legend(chart) {
  const swatch = (s) => svg("svg", { width: 26, height: 10, "aria-hidden": "true" },
    svg("line", { x1: 0, y1: 5, x2: 26, y2: 5, class: `s${s + 1}`, "stroke-width": 2.5, "stroke-dasharray": DASHES[s].join(" ") }));
  return el("ul", { class: "legend" }, chart.series.map((series, s) => el("li", {}, swatch(s), series.name)));
}

// The numbers of a chart as a table, made when it is opened.
function numbersTable(chart) {
  const shown = el("details", {}, el("summary", {}, "The numbers"));
  shown.addEventListener("toggle", () => {
    if (!shown.open || shown.childElementCount > 1) return;
    const places = [...new Set(chart.series.flatMap((series) => series.x.map((x, i) => JSON.stringify([x, series.at[i] ?? ""]))))];
    const rows = places.map((place) => {
      const [x, name] = JSON.parse(place);
      const cells = chart.series.map((series) => {
        const i = series.x.findIndex((other, k) => other === x && (series.at[k] ?? "") === name);
        return i < 0 ? "-" : numbersOf(series, i);
      });
      return [`${name ? `${name}, ` : ""}${typeof x === "number" ? grouped(x) : x}`, ...cells];
    });
    shown.append(table(`${chart.title}: ${chart.y}`, [chart.x, ...chart.series.map((series) => series.name)], rows));
  });
  return shown;
}

// Draw a chart into a figure: the plot, its legend, its numbers.
async function draw(figure, chart) {
  const plot = el("div", { class: "plot" });
  figure.append(el("p", { class: "axis" }, chart.y), plot, legend(chart), numbersTable(chart));
  await vegaEmbed(plot, specification(chart), { ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: tip });
}

// Those in sight first, then the others while nothing else is to be done: a page that is printed has them all.
function drawAll(figures) {
  const waiting = new Set(figures);
  const drawn = async (figure) => {
    if (!waiting.delete(figure)) return;
    watch.unobserve(figure);
    const { charts } = await details();
    await draw(figure, charts[Number(figure.dataset.chart)]);
  };
  const watch = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) drawn(target);
  }, { rootMargin: "300px" });
  for (const figure of figures) watch.observe(figure);
  const whenIdle = globalThis.requestIdleCallback ?? setTimeout; // Safari has none
  const next = () => { if (waiting.size) drawn(waiting.values().next().value).then(() => whenIdle(next)); };
  whenIdle(next);
  addEventListener("beforeprint", () => waiting.forEach(drawn));
}
