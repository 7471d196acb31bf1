document.body.append(TIP);
readAddress();
document.querySelectorAll("[data-narrowed]").forEach(narrow);
makeFilters();
makeHead();
makeCompared();
listeners.push(
  (keys) => keys.some((key) => key !== "run") && showList(),
  (keys) => keys.some((key) => SIDES.includes(key)) && showComparison(),
  (keys) => keys.includes("run") && (state.run ? showRun(state.run) : SOURCE.open && SOURCE.close()),
);
for (const notify of listeners) notify(KEYS);
drawAll(document.querySelectorAll("figure[data-chart]"));
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-runs]");
  if (button) showRuns(button.dataset.of, button.dataset.runs.split(" "));
});
if (section) byId(section)?.scrollIntoView({ behavior: "instant" });
