// What is chosen, in the fragment of the address: #section&key=value&...
const KEYS = ["find", "experiment", "activation", "init", "model", "data", "protocol", "sort", "page", "run", "a", "b"];
const state = {};
let section = "";
const listeners = [];

function readAddress() {
  const parts = decodeURIComponent(location.hash.slice(1)) === "" ? [] : location.hash.slice(1).split("&");
  section = parts.length && !parts[0].includes("=") ? parts.shift() : section;
  const given = new URLSearchParams(parts.join("&"));
  if (parts.length || !Object.keys(state).length) {
    for (const key of KEYS) {
      if (given.has(key)) state[key] = given.get(key);
      else delete state[key];
    }
  }
}

function address() {
  const given = new URLSearchParams(KEYS.filter((key) => state[key]).map((key) => [key, state[key]]));
  const text = [section, given.toString()].filter(Boolean).join("&");
  return text ? `#${text}` : "#";
}

// changes: null or "" takes a key away. A key other than the page's number goes back to the first page.
function choose(changes) {
  if (!("page" in changes) && Object.keys(changes).some((key) => !["run", "a", "b"].includes(key))) delete state.page;
  for (const [key, value] of Object.entries(changes)) {
    if (value == null || value === "") delete state[key];
    else state[key] = String(value);
  }
  history.replaceState(null, "", address());
  for (const tell of listeners) tell(Object.keys(changes));
}

addEventListener("hashchange", () => {
  readAddress(); // an anchor of this page, or an address that was pasted
  history.replaceState(null, "", address());
  for (const tell of listeners) tell(KEYS);
});
