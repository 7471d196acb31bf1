// Above a section's tables or lists: one of them alone, or the lines that hold some words. Without scripts all stand there.
function narrow(box) {
  const groups = [...box.querySelectorAll(".group")];
  const lines = groups.map((group) => [...group.querySelectorAll("tbody tr, ul > li")]);
  const field = el("input", { type: "search", on: { input: () => show() } });
  const shown = el("select", { on: { change: () => show() } },
    el("option", { value: "" }, "all"), groups.map((group, i) => el("option", { value: i }, group.querySelector("h3").textContent)));
  const count = el("p", { class: "count", role: "status" });
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let fitting = 0;
    groups.forEach((group, g) => {
      const fits = lines[g].map((line) => words.every((word) => line.textContent.toLowerCase().includes(word)));
      lines[g].forEach((line, i) => { line.hidden = !fits[i]; });
      group.hidden = (shown.value !== "" && Number(shown.value) !== g) || (words.length > 0 && !fits.includes(true));
      if (!group.hidden) fitting += fits.filter(Boolean).length;
    });
    count.textContent = words.length || shown.value !== "" ? `${grouped(fitting)} of ${grouped(lines.flat().length)} lines` : "";
  };
  const fields = [el("label", {}, `find ${box.dataset.narrowed}`, field), groups.length > 1 ? el("label", {}, "show", shown) : null];
  box.prepend(el("form", { class: "filters", on: { submit: (event) => event.preventDefault() } }, fields), count);
}
