// The page of the service. Text that comes from data or from people enters the page as text nodes only (textContent):
// nothing is ever parsed as HTML. No outside host is contacted.
"use strict";

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let token = sessionStorage.getItem("token") || "";
let datasets = [];

// Making elements

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function draw(name, attributes = {}, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const number = (value, digits = 4) =>
  value === null || value === undefined ? "–" : Number(value).toLocaleString("en", { maximumSignificantDigits: digits });
const whole = (value) => Math.round(value).toLocaleString("en");
const percent = (share) => (100 * share).toLocaleString("en", { maximumFractionDigits: 2 }) + "%";

function table(head, rows, caption) {
  const top = make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell) =>
    make("td", typeof cell === "string" ? { class: "text" } : {}, cell instanceof Node ? cell : String(cell)))));
  return make("div", { class: "scroll" },
    make("table", {}, make("caption", { class: "quiet" }, caption), make("thead", {}, top), make("tbody", {}, ...body)));
}

// Talking to the service

class Refusal extends Error {
  constructor(status, body) { super(body.message || "refused"); this.status = status; this.code = body.error; }
}

async function call(path, options = {}) {
  const headers = { Authorization: "Bearer " + token, ...(options.headers || {}) };
  if (options.json !== undefined) { headers["Content-Type"] = "application/json"; options.body = JSON.stringify(options.json); }
  const answer = await fetch("v1" + path, { ...options, headers });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, body);
  return body;
}

function say(text) { $("message").textContent = text; }

function fresh() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "page-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Signing in

async function enter() {
  try {
    const person = await call("/me");
    datasets = await call("/datasets");
    sessionStorage.setItem("token", token);
    $("login").hidden = $("welcome").hidden = true;
    $("who").hidden = $("tabs").hidden = false;
    $("who").firstElementChild.textContent = person.analyst + (person.role === "admin" ? " (administrator)" : "");
    $("tab-owner").hidden = person.role !== "admin";
    for (const id of ["dataset", "answers-dataset", "owner-dataset"])
      $(id).replaceChildren(...datasets.map((one) => make("option", { value: one.name }, one.name)));
    await offered();
    say("");
    choose("ask");
    chosen();
  } catch (error) {
    sessionStorage.removeItem("token");
    say(error.status === 401 ? "This token is not known. Was it revoked or rotated?" : error.message);
  }
}

async function offered() {
  const description = await (await fetch("openapi.json")).json();
  const kinds = description.components.schemas.Asked.properties.counts;
  const names = { auto: "best noise", gaussian: "Gaussian noise", laplace: "Laplace noise", none: "labels only" };
  $("counts").replaceChildren(...kinds.enum.map((kind) => make("option", { value: kind }, names[kind] || kind)));
  $("counts").value = kinds.default;
}

$("login").addEventListener("submit", (event) => { event.preventDefault(); token = $("token").value.trim(); enter(); });
$("leave").addEventListener("click", () => { sessionStorage.removeItem("token"); location.reload(); });

// Tabs, also by arrow keys

function choose(name) {
  for (const tab of $("tabs").children) {
    const here = tab.id === "tab-" + name;
    tab.setAttribute("aria-selected", here);
    tab.tabIndex = here ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !here;
  }
  if (name === "answers") listAnswers();
  if (name === "owner") showSpending();
}
$("tabs").addEventListener("click", (event) => { if (event.target.id) choose(event.target.id.slice(4)); });
$("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = [...$("tabs").children].filter((tab) => !tab.hidden);
  const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
  choose(next.id.slice(4));
  next.focus();
});

// A question, and what it would cost

const dataset = () => datasets.find((one) => one.name === $("dataset").value);
const by = () => document.querySelector("input[name=by]:checked").value;
const slid = () => {
  const [least, most] = by() === "epsilon" ? [0.02, 5] : [2, 2000];
  return Number((least * (most / least) ** ($("slider").value / 100)).toPrecision(3));
};

function chosen() {
  const one = dataset();
  if (!one) return;
  const moved = one.labels_per_user === null ? "any number of labels" : `at most ${one.labels_per_user} label(s)`;
  $("about").textContent = `${one.description} Protected: one ${one.unit}, which moves ${moved} by at most ` +
    `${one.per_label_cap}. Version ${one.version}; ${one.domain} labels.`;
  $("filters").replaceChildren(...Object.entries(one.filters).map(([column, values]) => make("label", {}, column,
    make("select", { "data-column": column }, make("option", { value: "" }, "all"),
      ...values.map((value) => make("option", { value }, value))))));
  foresee();
}

function asked() {
  const where = {};
  for (const select of $("filters").querySelectorAll("select")) if (select.value) where[select.dataset.column] = select.value;
  return { k: Number($("k").value), delta: Number($("delta").value), counts: $("counts").value, where, [by()]: slid() };
}

let waiting, latest = 0;
function foresee() {
  $("slider-name").textContent = by() === "epsilon" ? "ε" : "error ±";
  $("slider-value").textContent = number(slid(), 3);
  $("slider").setAttribute("aria-valuetext", $("slider-name").textContent + " " + number(slid(), 3));
  $("before").classList.add("stale");
  $("go").disabled = true;
  clearTimeout(waiting);
  waiting = setTimeout(plan, 250);
}

async function plan() {
  const mine = ++latest;
  try {
    const made = await call(`/datasets/${$("dataset").value}/plan`, { method: "POST", json: asked() });
    if (mine !== latest) return;
    say("");
    promise(made);
  } catch (error) {
    if (mine !== latest) return;
    $("promise").replaceChildren();
    $("balance").replaceChildren(make("p", { class: "refused" }, error.message));
  }
  $("before").classList.remove("stale");
}

function promise(made) {
  const above = made.above_rank ? ` above the count of rank ${made.above_rank}` : " above 0";
  const facts = [
    ["Cost", `ε = ${number(made.epsilon)}, δ = ${made.delta}`],
    ["95% of the noise on a count", made.half_width === null ? "no counts" : `within ± ${number(made.half_width)}`],
    ["Error bars of all rows at once", made.error_bar === null ? "as the answer has them" : `± ${number(made.error_bar)}`],
    ["A label appears (half of the times) at", made.appears_at === null ? "always" : whole(made.appears_at) + above],
    ["Charged as", made.charge],
  ];
  $("promise").replaceChildren(...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  $("foreseen").replaceChildren(...(made.half_width === null ? [] : [foreseen(made)]));
  let refused = "";
  const lines = Object.entries(made.balance).map(([owner, one]) => {
    refused = refused || one.refused;
    const name = owner === "total" ? "Budget of the data set" : "Your part";
    const text = one.refused ? `${percent(one.share)} used: this question does not fit`
      : `${percent(one.share)} used now, ${percent(one.share_after)} after this question; ` +
        `it fits ${one.fits >= 2 ** 30 ? "without end" : whole(one.fits) + " time(s)"}`;
    return make("p", one.refused ? { class: "refused" } : {}, make("b", {}, name + ": "), text,
      make("meter", { min: 0, max: 1, value: one.refused ? one.share : one.share_after, "aria-label": name }));
  });
  $("balance").replaceChildren(...lines);
  $("explain").textContent = made.explain;
  $("go").disabled = Boolean(refused);
}

// How an answer's error bar will look, at a count that is surely released: made up, no data takes part.
function foreseen(made) {
  const bar = made.error_bar ?? made.half_width;
  const count = Math.ceil(Math.max(2 * (made.appears_at || 0), 4 * bar, 10));
  const row = { label: `a count of ${whole(count)}`, count, low: Math.max(0, count - bar), high: count + bar };
  return bars([row], "What to expect");
}

for (const id of ["k", "counts", "delta", "slider", "filters"]) $(id).addEventListener("input", foresee);
$("dataset").addEventListener("input", chosen);
for (const radio of document.querySelectorAll("input[name=by]")) radio.addEventListener("input", foresee);

// Asking: the key is kept until an answer or a refusal came, so that a retry never pays twice

let pending = null;
$("question").addEventListener("submit", async (event) => {
  event.preventDefault();
  const question = asked(), name = $("dataset").value, text = JSON.stringify([name, question]);
  if (!pending || pending.text !== text) pending = { text, key: fresh() };
  busy(true);
  try {
    let answer = await spend(name, question, pending.key);
    while (answer.stage) { await follow(answer.job); answer = await spend(name, question, pending.key); }
    pending = null;
    say("");
    $("answer").replaceChildren(card(answer));
    $("answer").scrollIntoView({ block: "nearest" });
  } catch (error) {
    if (error.status && error.status !== 503 && error.status !== 429) pending = null;
    say(error.status ? error.message : "The connection broke. Ask again: the same question is not charged twice.");
  }
  busy(false);
  plan();
});

const spend = (name, json, key) =>
  call(`/datasets/${name}/topk?wait=1`, { method: "POST", json, headers: { "Idempotency-Key": key } });

function busy(on) {
  $("go").disabled = on;
  $("cancel").hidden = $("progress").hidden = !on;
  $("stage").textContent = on ? "Asking…" : "";
  if (on) $("progress").removeAttribute("value");
}

async function follow(job) {
  $("cancel").onclick = () => call("/jobs/" + job, { method: "DELETE" }).catch((error) => say(error.message));
  const answer = await fetch("v1/jobs/" + job + "/events", { headers: { Authorization: "Bearer " + token } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const now = JSON.parse(event.split("data: ")[1]);
      $("stage").textContent = { reading: "Reading the data…", charging: "Charged; drawing…" }[now.stage] || now.stage;
      if (now.total > 1) { $("progress").max = now.total; $("progress").value = now.done; }
    }
  }
}

// An answer: chart, table, downloads

function card(answer) {
  const rows = answer.release.rows.map((row, place) => ({ ...row, ...((answer.intervals || [])[place] || {}) }));
  const name = `${answer.dataset}-${answer.entry}`;
  const filters = Object.entries(answer.question.where).map(([column, value]) => `, ${column} = ${value}`).join("");
  const title = `Top ${answer.question.k} of ${answer.dataset}${filters}`;
  const chart = rows.length ? bars(rows, title) : make("p", {}, "No label passed the threshold.");
  const cells = rows.map((row) => [row.rank, String(row.label), ...(row.count === undefined ? [] : [
    whole(row.count), ...(row.low === undefined ? [] : [`${whole(row.low)} to ${whole(row.high)}`,
      `${row.rank_low} to ${row.rank_high}`])])]);
  const head = ["Rank", "Label", "Noisy count", "Count, 95%", "Rank, 95%"].slice(0, cells.length ? cells[0].length : 2);
  const saved = [["CSV", "text/csv", csv(rows)], ["JSON", "application/json", JSON.stringify(answer, null, 1)]];
  if (rows.length) saved.push(["SVG", "image/svg+xml", new XMLSerializer().serializeToString(chart)]);
  return make("article", { class: "card" }, make("h2", {}, title),
    make("p", { class: "quiet" }, `Entry ${answer.entry} of the ledger, ${answer.at.slice(0, 16)} UTC, data version ` +
      `${answer.version}; charged ${answer.charge}. ${answer.release.note}`),
    chart, table(head, cells, "Intervals hold for all rows at once, with probability 95%."),
    make("p", { class: "actions" }, "Download: ", ...saved.map(([kind, type, text]) => {
      const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: `${name}.${kind.toLowerCase()}` });
      link.textContent = kind;
      return link;
    })));
}

// A label that begins like a formula would run in a spreadsheet: an apostrophe goes before it.
function csv(rows) {
  const columns = ["rank", "label", "count", "low", "high", "rank_low", "rank_high"].filter((name) => rows.length && name in rows[0]);
  const cell = (value) => {
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns.join(","), ...rows.map((row) => columns.map((name) => cell(row[name])).join(","))].join("\n") + "\n";
}

function bars(rows, title) {
  const step = 24, left = 190, width = 720, right = 70, height = rows.length * step + 10;
  const most = Math.max(1, ...rows.map((row) => row.high ?? row.count ?? 1));
  const x = (value) => left + (width - left - right) * Math.max(0, value) / most;
  const svg = draw("svg", { xmlns: SVG, viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(draw("title", {}, title + ": bars are noisy counts, whiskers hold the true ones with probability 95%"));
  rows.forEach((row, place) => {
    const y = place * step + step / 2 + 4, label = String(row.label);
    svg.append(draw("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, (label.length > 24 ? label.slice(0, 23) + "…" : label)));
    if (row.count === undefined) { svg.append(draw("text", { x: left, y: y + 4, class: "quiet" }, "#" + row.rank)); return; }
    svg.append(draw("rect", { x: left, y: y - 8, width: Math.max(0, x(row.count) - left), height: 16, class: "bar", fill: "#4a90d9" }));
    if (row.low !== undefined)
      svg.append(draw("path", { d: `M${x(row.low)} ${y - 5}v10m0-5H${x(row.high)}m0-5v10`, class: "whisker", stroke: "#222", fill: "none" }));
    svg.append(draw("text", { x: x(row.high ?? row.count) + 6, y: y + 4 }, whole(row.count)));
  });
  svg.append(draw("path", { d: `M${left} 0V${height}`, class: "axis", stroke: "#999" }));
  return svg;
}

async function listAnswers() {
  try {
    const found = await call(`/datasets/${$("answers-dataset").value}/releases`);
    $("answers-list").replaceChildren(...(found.length ? found.map(card) : [make("p", {}, "None yet.")]));
  } catch (error) { say(error.message); }
}
$("answers-dataset").addEventListener("input", listAnswers);

// The budget tool

const START = [
  { name: "daily top 10", kind: "topk", k: 10, labels_per_user: 5, times: 30, weight: 1 },
  { name: "monthly top 50", kind: "topk", k: 50, labels_per_user: 5, times: 1, weight: 3 },
  { name: "eight totals", kind: "counts", k: 8, labels_per_user: 2, times: 1, weight: 5 },
];

function addQuery(query) {
  const input = (name, value, type = "number") =>
    make("input", { "data-name": name, type, value, step: "any", min: 0, "aria-label": `${name.replaceAll("_", " ")} of ${query.name}` });
  const kind = make("select", { "data-name": "kind", "aria-label": "kind of " + query.name },
    make("option", { value: "topk" }, "top k"), make("option", { value: "counts" }, "counts"));
  kind.value = query.kind;
  const cells = [input("name", query.name, "text"), kind, input("k", query.k), input("labels_per_user", query.labels_per_user),
    input("times", query.times), input("weight", query.weight), input("error", ""), make("output", { "data-name": "even" }),
    make("input", { type: "checkbox", "data-name": "lock", "aria-label": "lock " + query.name }),
    make("button", { type: "button", "aria-label": "remove " + query.name }, "×")];
  const row = make("tr", {}, ...cells.map((cell) => make("td", {}, cell)));
  row.querySelector("button").addEventListener("click", () => { row.remove(); divide(); });
  row.addEventListener("change", (event) => {
    if (event.target.dataset.name === "error") row.querySelector("[data-name=lock]").checked = event.target.value !== "";
    divide();
  });
  $("queries").tBodies[0].append(row);
}
START.forEach(addQuery);
$("add-query").addEventListener("click", () => addQuery({ name: "query " + ($("queries").rows.length), kind: "topk", k: 10,
  labels_per_user: 5, times: 1, weight: 1 }));
$("divide-go").addEventListener("click", divide);
for (const id of ["total-epsilon", "total-delta"]) $(id).addEventListener("change", divide);

let dividing = 0;
async function divide() {
  const mine = ++dividing;
  const rows = [...$("queries").tBodies[0].rows];
  const queries = rows.map((row) => {
    const get = (name) => row.querySelector(`[data-name=${name}]`);
    const query = { name: get("name").value, kind: get("kind").value, k: Number(get("k").value), times: Number(get("times").value),
      weight: Number(get("weight").value), labels_per_user: Number(get("labels_per_user").value) || null };
    if (get("lock").checked && get("error").value) query.locked = Number(get("error").value);
    return query;
  });
  $("divide-stage").textContent = "Dividing…";
  try {
    const made = await call("/divide", { method: "POST",
      json: { epsilon: Number($("total-epsilon").value), delta: Number($("total-delta").value), queries } });
    if (mine !== dividing) return;
    made.parts.forEach((part, place) => {
      if (!rows[place].querySelector("[data-name=lock]").checked) rows[place].querySelector("[data-name=error]").value = part.error;
      rows[place].querySelector("[data-name=even]").textContent = number(part.even_error);
    });
    const less = 1 - made.weighted_error / made.even_error;
    const schedule = "day,query,mechanism\n" + made.schedule.map((line) => `${line.day},${JSON.stringify(line.query)},${JSON.stringify(line.mechanism)}`).join("\n") + "\n";
    const save = (text, name) => make("a", { href: URL.createObjectURL(new Blob([text])), download: name }, name);
    $("division").replaceChildren(
      make("p", {}, `Together ε = ${number(made.epsilon)} at δ = ${made.delta} (${made.bound}). The weighted error is ` +
        `${number(made.weighted_error)}, ${percent(less)} below an even split of the same total (${number(made.even_error)}).`),
      table(["Query", "Share", "Error ±", "Even split ±", "Charge"],
        made.parts.map((part) => [part.query.name, percent(part.share), number(part.error), number(part.even_error), part.charge]), "The division"),
      make("h3", {}, "Registration for the ledger"), make("pre", { tabindex: 0 }, made.registered),
      make("p", { class: "actions" }, "Download: ", save(made.registered + "\n", "registration.txt"), save(schedule, "schedule.csv")));
    say("");
  } catch (error) { if (mine === dividing) { $("division").replaceChildren(); say(error.message); } }
  $("divide-stage").textContent = "";
}

// For who owns the data

async function showSpending() {
  try {
    const name = $("owner-dataset").value;
    const [spent, budget] = await Promise.all([call(`/datasets/${name}/spending`), call(`/datasets/${name}/budget`)]);
    const total = budget.total;
    $("spending").replaceChildren(
      make("p", {}, `ε = ${number(total.epsilon)}, δ = ${total.delta} for everything, at every moment; ` +
        `${percent(total.share)} used, ${spent.renewals} renewal(s). Left: ${total.remaining}.`),
      spent.over_time.length ? line(spent.over_time) : make("p", {}, "Nothing was asked yet."),
      table(["Analyst", "Questions", "Spent", "Part used"], Object.entries(spent.analysts).map(([who, one]) =>
        [who, one.queries, one.spent, who in spent.limits ? percent(spent.limits[who]) : "no part of their own"]), "By analyst"),
      table(["Question", "Fits, more times"], budget.fits.map((one) =>
        [`top ${one.question ? one.question.k : "?"}, ` + (one.question && one.question.epsilon ? `ε = ${one.question.epsilon}` : "by accuracy"),
          one.fits >= 2 ** 30 ? "without end" : one.fits]), "What fits"));
  } catch (error) { say(error.message); }
}
$("owner-dataset").addEventListener("input", showSpending);

function line(points) {
  const width = 720, height = 220, left = 50, bottom = 30;
  const times = points.map((point) => Date.parse(point.at)), first = times[0], last = Math.max(times.at(-1), first + 1);
  const most = Math.max(...points.map((point) => point.share), 1e-9);
  const x = (time) => left + (width - left - 20) * (time - first) / (last - first);
  const y = (share) => 10 + (height - bottom - 10) * (1 - share / most);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(draw("title", {}, "Share of the budget used over time"));
  let path = `M${x(first)} ${y(0)}`;
  points.forEach((point, place) => { path += `H${x(times[place])}V${y(point.share)}`; });
  svg.append(draw("path", { d: `M${left} 10V${height - bottom}H${width - 20}`, class: "axis" }), draw("path", { d: path, class: "line" }),
    draw("text", { x: left - 6, y: y(most) + 5, "text-anchor": "end" }, percent(most)),
    draw("text", { x: left - 6, y: y(0) + 4, "text-anchor": "end" }, "0"),
    draw("text", { x: left, y: height - 8 }, points[0].at.slice(0, 16)),
    draw("text", { x: width - 20, y: height - 8, "text-anchor": "end" }, points.at(-1).at.slice(0, 16)));
  return svg;
}

if (token) enter();
