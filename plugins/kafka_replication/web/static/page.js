// What the pages cannot do as HTML: follow Airflow's theme, leave its frame, start a DAG run, mark a range on the map.
"use strict";

// Airflow keeps its theme in its own document; the frame of a plugin has the same origin. Elsewhere the browser's choice counts.
function outside() {
  try {
    return window.parent !== window && window.parent.location.origin === window.location.origin ? window.parent.document : null;
  } catch {
    return null;
  }
}

function showTheme() {
  const airflow = outside()?.documentElement;
  const said = airflow ? airflow.dataset.theme ?? (airflow.classList.contains("dark") ? "dark" : airflow.classList.contains("light") ? "light" : null) : null;
  document.documentElement.dataset.theme = said ?? (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

showTheme();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
if (outside()) {
  new MutationObserver(showTheme).observe(outside().documentElement, { attributes: true, attributeFilter: ["class", "data-theme"] });
}

// Airflow's frame may not navigate the page around it, but a link in that page may.
function leave(href) {
  const page = outside() ?? document;
  const link = page.createElement("a");
  link.href = new URL(href, window.location.href).href;
  page.body.append(link);
  link.click();
  link.remove();
}

function valueOf(input) {
  const text = input.value.trim();
  switch (input.dataset.kind) {
    case "switch": case "unpause": return input.checked;
    case "number": return text === "" ? null : Number(text);
    case "list": return text === "" ? null : text.split(/[,\s]+/).filter(Boolean);
    default: return text === "" ? null : text;
  }
}

async function ask(method, path, body) {
  const answer = await fetch(document.body.dataset.airflow + path, {
    method,
    credentials: "same-origin",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
  });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const detail = typeof said.detail === "string" ? said.detail : JSON.stringify(said.detail ?? "");
    throw new Error(`Airflow answers ${answer.status}: ${detail}`);
  }
  return said;
}

// Airflow's own interface starts the run: it checks the right to do so, and its audit log says who did it.
async function start(form) {
  const { dag, task, conf } = form.dataset;
  const wanted = JSON.parse(conf);
  for (const input of form.querySelectorAll("input")) {
    const value = valueOf(input);
    if (value !== null && input.dataset.kind !== "unpause") wanted[input.name] = value;
  }
  const path = `/api/v2/dags/${encodeURIComponent(dag)}`;
  if (form.dataset.unpause || form.querySelector("input[data-kind=unpause]:checked")) {
    await ask("PATCH", `${path}?update_mask=is_paused`, { is_paused: false });
  }
  const run = await ask("POST", `${path}/dagRuns`, { logical_date: null, conf: wanted });
  const page = `${document.body.dataset.airflow}/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run.dag_run_id)}`;
  leave(task ? `${page}/tasks/${task}` : page);
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form.action")) return;
  event.preventDefault();
  const [button, said] = [form.querySelector("button"), form.querySelector("output")];
  button.disabled = true;
  said.textContent = "";
  try {
    await start(form);
  } catch (problem) {
    said.textContent = problem.message;
  } finally {
    button.disabled = false;
  }
});

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[target=_top]");
  if (link && outside() && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    leave(link.href);
  }
});

// Numbers that are no longer renewed must not look fresh: an expired login, or a server that is away, changes nothing else on the page.
let renewedAt = new Date();

document.addEventListener("htmx:afterRequest", (event) => {
  const { successful, xhr } = event.detail;
  const said = document.getElementById("stale");
  document.body.classList.toggle("stale", !successful);
  said.hidden = successful;
  if (successful) {
    renewedAt = new Date();
    said.textContent = "";
    return;
  }
  const why = { 0: "Airflow does not answer", 401: "your login is over: log in to Airflow again", 403: "you may no longer see this", 503: "the store cannot be used: see the API server's log" };
  said.textContent = `Not renewed since ${renewedAt.toISOString().slice(0, 19).replace("T", " ")} UTC: ${why[xhr.status] ?? `the answer is ${xhr.status}`}.`;
});

// A part of the page that is renewed keeps the focus of whoever uses the keyboard.
let focused = null;

document.addEventListener("htmx:beforeSwap", (event) => {
  const at = document.activeElement;
  focused = event.target.contains(at) ? at.getAttribute("href") : null;
});

document.addEventListener("htmx:afterSettle", () => {
  if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  focused = null;
});

// A range that is dragged over on the map goes into the forms below it.
let drag = null;

function offsetAt(map, event) {
  const box = map.getBoundingClientRect();
  const left = Number(map.dataset.left);
  const share = Math.min(Math.max(((event.clientX - box.left) / box.width - left) / (1 - left), 0), 1);
  const [from, until] = [Number(map.dataset.from), Number(map.dataset.until)];
  return Math.round(from + share * (until - from));
}

document.addEventListener("pointerdown", (event) => {
  const map = event.target.closest?.("svg.map");
  if (map && event.button === 0) drag = { map, first: offsetAt(map, event), x: event.clientX };
});

document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const { map, first, x } = drag;
  const box = map.getBoundingClientRect();
  const scale = map.viewBox.baseVal.width / box.width;
  const marked = map.querySelector(".marked");
  marked.setAttribute("x", (Math.min(x, event.clientX) - box.left) * scale);
  marked.setAttribute("width", Math.abs(event.clientX - x) * scale);
  const [from, until] = [first, offsetAt(map, event)].sort((one, other) => one - other);
  for (const form of document.querySelectorAll("form.action")) {
    if (!form.elements.from) continue;
    form.elements.from.value = from;
    form.elements.until.value = until;
  }
});

document.addEventListener("pointerup", () => { drag = null; });
