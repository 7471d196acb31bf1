// The reader's choices, in the fragment of the address: #section&key=value&...
const SIDES = ["a", "b", "c", "d", "e", "f", "g", "h"]; // of a comparison: as many as there are colours
const KEYS = ["find", "whose", "experiment", "activation", "init", "model", "data", "protocol", "sort", "page", "run", ...SIDES];
const state = {};
let section = "";
const listeners = [];

function readAddress() {
  const parts = decodeURIComponent(location.hash.slice(1)) === "" ? [] : location.hash.slice(1).split("&");
  section = parts.length && !parts[0].includes("=") ? parts.shift() : section;
  const query = new URLSearchParams(parts.join("&"));
  if (parts.length || !Object.keys(state).length) {
    for (const key of KEYS) {
      if (query.has(key)) state[key] = query.get(key);
      else delete state[key];
    }
  }
}

function address() {
  const query = new URLSearchParams(KEYS.filter((key) => state[key]).map((key) => [key, state[key]]));
  const text = [section, query.toString()].filter(Boolean).join("&");
  return text ? `#${text}` : "#";
}

// changes: null or "" removes a key. Any key but the page's number leads back to the first page.
function choose(changes) {
  if (!("page" in changes) && Object.keys(changes).some((key) => !["run", ...SIDES].includes(key))) delete state.page;
  for (const [key, value] of Object.entries(changes)) {
    if (value == null || value === "") delete state[key];
    else state[key] = String(value);
  }
  history.replaceState(null, "", address());
  for (const notify of listeners) notify(Object.keys(changes));
}

addEventListener("hashchange", () => {
  readAddress(); // an anchor of this page, or a pasted address
  history.replaceState(null, "", address());
  for (const notify of listeners) notify(KEYS);
});
