// Elements are made only here, and text is inserted as text, so that nothing in a record can become markup.
const byId = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

let scrolls = 0;

// A table in a box of its own, so that the page itself never scrolls sideways. rows: arrays of text or elements.
function table(title, head, rows, { level = "h4", wraps = false, tall = false } = {}) {
  const id = `t${scrolls++}`;
  const cells = (row) => row.map((cell, i) => el(i ? "td" : "th", i ? {} : { scope: "row" }, cell));
  return el("div", {},
    el(level, { id }, title),
    el("div", { class: tall ? "scroll tall" : "scroll", role: "group", "aria-labelledby": id, tabindex: "0" },
      el("table", { "aria-labelledby": id, class: wraps ? "wraps" : null },
        el("thead", {}, el("tr", {}, head.map((text) => (text ? el("th", { scope: "col" }, text) : el("td"))))),
        el("tbody", {}, rows.map((row) => el("tr", {}, cells(row)))))));
}

// A command and a button that copies it; where the browser refuses, the text is selected instead.
function command(text) {
  const shown = el("pre", { tabindex: "0" }, el("code", {}, text));
  const status = el("span", { role: "status", class: "note" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      status.textContent = " Copied.";
    } catch {
      getSelection().selectAllChildren(shown);
      status.textContent = " Selected; copy it with Ctrl+C.";
    }
  };
  return el("div", { class: "command" }, shown, el("button", { type: "button", on: { click: copy } }, "Copy"), status);
}
