document.body.append(TIP);
readAddress();
makeFilters();
makeHead();
makePair();
listeners.push(
  (keys) => keys.some((key) => key !== "run") && showList(),
  (keys) => keys.some((key) => key === "a" || key === "b") && showComparison(),
  (keys) => keys.includes("run") && (state.run ? showRun(state.run) : SOURCE.open && SOURCE.close()),
);
for (const notify of listeners) notify(KEYS);
drawWhenVisible(document.querySelectorAll("figure[data-chart]"));
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-runs]");
  if (button) showRuns(button.dataset.of, button.dataset.runs.split(" "));
});
if (section) byId(section)?.scrollIntoView({ behavior: "instant" });
