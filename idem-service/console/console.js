// The operator's page. Everything that comes from the service is written as text, never as markup.
"use strict";

const byId = (id) => document.getElementById(id);
const TOKEN = "idem.service-token";
const REFRESH_MS = 5000;
const AUDIT_PAGE = 50;

const FIELDS = [
  ["Scope", (k) => k.scope],
  ["Key", (k) => k.key],
  ["Operation id", (k) => k.operationId],
  ["Fencing token", (k) => k.fencingToken],
  ["Attempts", (k) => k.attempts],
  ["First reserved", (k) => moment(k.createdAt)],
  ["Last change", (k) => moment(k.updatedAt)],
  ["Lease ends", (k) => moment(k.leaseExpiresAt)],
  ["Completed", (k) => moment(k.completedAt)],
  ["Retention ends", (k) => moment(k.expiresAt)],
  ["Stored status", (k) => k.status],
  ["Resource", (k) => k.resourceId],
  ["Trace of the last attempt", (k) => k.traceContext],
];

let shown = null;
let listed = null;
let page = 0;
let audited = "";

// === talking to the service ===

async function ask(path, parameters, body) {
  const url = new URL(`/console/api/${path}`, location.href);
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value !== "") url.searchParams.set(name, value);
  }
  const headers = { "x-idem-console": "1" };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(url, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  const json = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(json.error ?? `the service answered ${answer.status}`), { status: answer.status });
  return json;
}

// Runs `work`; what goes wrong is shown in one place.
async function attempt(work) {
  const trouble = byId("trouble");
  try {
    await work();
    trouble.hidden = true;
  } catch (error) {
    trouble.textContent = error instanceof TypeError ? "The service cannot be reached." : error.message;
    trouble.hidden = false;
  }
}

// === showing ===

function distance(text) {
  if (!text) return "";
  const seconds = Math.round((Date.parse(text) - Date.now()) / 1000);
  const size = Math.abs(seconds);
  const [amount, unit] = size < 120 ? [size, "s"] : size < 7200 ? [Math.round(size / 60), "min"] : [Math.round(size / 3600), "h"];
  return seconds < 0 ? `${amount} ${unit} ago` : `in ${amount} ${unit}`;
}

function moment(text) {
  return text ? `${text} (${distance(text)})` : "";
}

function stateOf(key) {
  return key.leaseOver ? "lease over" : key.state.replace("_", " ");
}

// Since when it is open, which no retry makes shorter, or finished.
function sinceOf(key) {
  return key.state === "in_progress" || key.state === "in_doubt" ? key.createdAt : key.updatedAt;
}

function isWorrying(key) {
  return key.leaseOver || key.state === "in_doubt";
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function time(text) {
  const cell = element("td", distance(text));
  cell.title = text ?? "";
  return cell;
}

function rowOf(key) {
  const row = element("tr");
  row.append(element("td", stateOf(key), isWorrying(key) ? "warn" : ""), element("td", key.scope));
  const name = element("td", undefined, "name");
  const open = element("button", key.key);
  open.type = "button";
  open.title = key.key;
  open.addEventListener("click", () => attempt(() => find(key.scope, key.key)));
  name.append(open);
  const result = [key.status, key.resourceId].filter((part) => part).join(" ");
  row.append(name, element("td", key.attempts), time(sinceOf(key)), time(key.leaseExpiresAt ?? key.expiresAt),
    element("td", result));
  return row;
}

function show(key) {
  shown = key;
  byId("detail").hidden = false;
  byId("detail-state").textContent = stateOf(key);
  byId("detail-state").className = isWorrying(key) ? "warn" : "";
  byId("detail-explanation").textContent = key.explanation;
  const fields = FIELDS.map(([name, value]) => [name, value(key)]).filter(([, value]) => value !== null && value !== "");
  byId("detail-fields").replaceChildren(...fields.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  byId("resolve").hidden = key.state === "completed";
}

async function find(scope, key) {
  byId("settled").textContent = "";
  try {
    show(await ask("key", { scope, key }));
  } catch (error) {
    byId("detail").hidden = true;
    throw error;
  }
  byId("detail").scrollIntoView({ behavior: "smooth" });
}

async function refreshStats() {
  const stats = await ask("stats");
  for (const place of document.querySelectorAll("[data-stat]")) {
    const count = stats[place.dataset.stat];
    place.textContent = count;
    place.parentElement.classList.toggle("some", count > 0);
  }
  byId("oldest").textContent = stats.oldestInDoubtAt ? `the first of them ${distance(stats.oldestInDoubtAt)}` : "";
}

async function list(parameters, pageToken) {
  const asked = ++page;
  const { keys, nextPageToken } = await ask("keys", { ...parameters, pageToken, pageSize: 50 });
  // A later question has been asked meanwhile.
  if (asked !== page) return;
  const rows = keys.map(rowOf);
  if (pageToken) byId("rows").append(...rows);
  else byId("rows").replaceChildren(...rows);
  byId("none").hidden = byId("rows").childElementCount > 0;
  byId("more").hidden = nextPageToken === "";
  listed = { parameters, nextPageToken };
}

async function audit(beforeId) {
  const { entries } = await ask("audit", { beforeId, pageSize: AUDIT_PAGE });
  const rows = entries.map((entry) => {
    const row = element("tr");
    const tokens = `${entry.fencingTokenBefore} → ${entry.fencingTokenAfter}`;
    const who = [entry.operator, entry.service].filter((part) => part).join(", ");
    row.append(time(entry.at), ...[entry.scope, entry.key, entry.action, tokens, who, entry.reason].map((text) => element("td", text)));
    return row;
  });
  if (beforeId) byId("audit-rows").append(...rows);
  else byId("audit-rows").replaceChildren(...rows);
  byId("audit-none").hidden = byId("audit-rows").childElementCount > 0;
  byId("audit-more").hidden = entries.length < AUDIT_PAGE;
  audited = entries.at(-1)?.id ?? "";
}

// === forms ===

const values = (form) => Object.fromEntries(new FormData(form));

function on(id, event, work) {
  byId(id).addEventListener(event, (happened) => {
    happened.preventDefault();
    attempt(() => work(happened.currentTarget ?? byId(id)));
  });
}

function actionOf({ action, status, contentType, body, resourceId }) {
  return action === "complete" ? { complete: { status: Number(status), contentType, body, resourceId } } : { [action]: {} };
}

// Settles the key that is shown. Every retry and every look of a reconciler takes a key up again and puts it back in doubt under
// the next token: then the operator is asked once more, and settles it whatever its token is.
async function resolve(wish) {
  try {
    return await ask("resolve", {}, { ...wish, fencingToken: shown.fencingToken });
  } catch (refusal) {
    if (refusal.status !== 409) throw refusal;
    const before = shown;
    show(await ask("key", { scope: wish.scope, key: wish.key }));
    const isSame = shown.operationId === before.operationId && shown.state !== "completed";
    const question = `${refusal.message}\n\nIt is the same operation, now ${stateOf(shown)}. Settle it whatever its token is by then?`;
    if (!isSame || !confirm(question)) throw refusal;
    return ask("resolve", {}, { ...wish, fencingToken: 0 });
  }
}

async function settle() {
  const form = byId("resolve");
  const { reason, operator, ...rest } = values(form);
  if (!confirm(`Settle this key by hand (${rest.action})? Whoever holds it can change nothing afterwards.`)) return;
  const { scope, key } = shown;
  show(await resolve({ scope, key, reason, operator, action: actionOf(rest) }));
  byId("settled").textContent = "Settled.";
  form.reset();
  byId("answer").hidden = true;
  await Promise.all([refreshStats(), list(values(byId("filter")), "")]);
}

function everything() {
  return attempt(() => Promise.all([refreshStats(), list(values(byId("filter")), "")]));
}

on("access", "submit", async () => {
  sessionStorage.setItem(TOKEN, byId("token").value);
  await Promise.all([refreshStats(), list(values(byId("filter")), "")]);
});
on("find", "submit", () => {
  const { scope, key } = values(byId("find"));
  return find(scope, key);
});
on("filter", "submit", () => list(values(byId("filter")), ""));
on("more", "click", () => list(listed.parameters, listed.nextPageToken));
on("audit", "click", () => audit(""));
on("audit-more", "click", () => audit(audited));
on("resolve", "submit", settle);
byId("resolve").addEventListener("change", () => {
  byId("answer").hidden = new FormData(byId("resolve")).get("action") !== "complete";
});

byId("token").value = sessionStorage.getItem(TOKEN) ?? "";
everything();
// Only what is cheap and always wanted; the list stays as it is while somebody reads it.
setInterval(() => { if (!document.hidden) attempt(refreshStats); }, REFRESH_MS);
