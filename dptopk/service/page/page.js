// The page of the service: signing in, the views, and asking.
import { $, budget, call, fresh, headers, level, make, number, ownerOf, say, signed, small, whole } from "./common.js";
import { bars, card, protectedOf } from "./answer.js";
import { begin } from "./divide.js";
import { showSpending } from "./owner.js";
import { listStreams } from "./streams.js";

let datasets = [];

// Signing in

async function enter(token) {
  signed(token);
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
    const daily = datasets.filter((one) => one.streams);
    $("tab-streams").hidden = !daily.length;
    $("streams-dataset").replaceChildren(...daily.map((one) => make("option", { value: one.name }, one.name)));
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
  const kinds = description.components.schemas.TopK.properties.counts;
  const names = { auto: "best noise", gaussian: "Gaussian noise", laplace: "Laplace noise", box: "box noise", none: "labels only" };
  $("counts").replaceChildren(...kinds.enum.map((kind) => make("option", { value: kind }, names[kind] || kind)));
  $("counts").value = kinds.default;
}

$("login").addEventListener("submit", (event) => { event.preventDefault(); enter($("token").value.trim()); });
$("leave").addEventListener("click", () => { sessionStorage.removeItem("token"); location.reload(); });

// Tabs, also by arrow keys

function choose(name) {
  for (const tab of $("tabs").children) {
    const here = tab.id === "tab-" + name;
    tab.setAttribute("aria-selected", here);
    tab.tabIndex = here ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !here;
  }
  say("");
  if (name === "answers") listAnswers();
  if (name === "owner") showSpending();
  if (name === "streams") listStreams();
  if (name === "divide") begin();
}
$("tabs").addEventListener("click", (event) => { if (event.target.id !== "tabs") choose(event.target.id.slice(4)); });
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
  for (const id of ["answers-dataset", "owner-dataset"]) $(id).value = one.name; // the views open where the user was
  if (one.streams) $("streams-dataset").value = one.name;
  $("protected").textContent = "";
  $("about").textContent = `${one.description} Data version ${one.version}; ${one.domain} labels.`;
  $("filters").replaceChildren(...Object.entries(one.filters).map(([column, values]) => make("label", {}, column,
    make("select", { "data-column": column }, make("option", { value: "" }, "all"),
      ...(column in one.segments ? [make("option", { value: "each" }, `each ${column}, at once`)] : []),
      ...values.map((value) => make("option", { value: "=" + value }, value))))));
  foresee();
}

function asked() {
  const where = {}, segments = {};
  for (const select of $("filters").querySelectorAll("select")) {
    if (select.value === "each") segments[select.dataset.column] = [];
    else if (select.value) where[select.dataset.column] = select.value.slice(1);
  }
  return { k: Number($("k").value), delta: Number($("delta").value), counts: $("counts").value, where, segments, [by()]: slid() };
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
    if (error.status === 429) { waiting = setTimeout(plan, 1000); return; }
    for (const id of ["promise", "foreseen", "protected"]) $(id).replaceChildren();
    $("explain").textContent = $("charged").textContent = "";
    $("balance").replaceChildren(make("p", { class: "refused" }, error.message));
  }
  $("before").classList.remove("stale");
}

function promise(made) {
  const each = Object.keys(asked().segments)[0];
  const facts = [
    [each ? `Cost of all answers, one for each ${each}` : "Cost", `ε = ${number(made.epsilon)}, δ = ${small(made.delta)}`],
    [`${level(made.confidence)} of the noise on a count`, made.half_width === null ? "no counts" : `within ± ${number(made.half_width)}`],
    ["Error bars of all rows at once", made.error_bar === null ? "as the answer has them" : `about ± ${number(made.error_bar)}`],
    ["Which labels are shown", made.appearing || "any, whatever its count"],
  ];
  $("promise").replaceChildren(...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  $("protected").textContent = `Protected: ${protectedOf({ ...dataset(), ...made })}.`; // by the caps of this question's counts
  $("charged").textContent = `Charged as ${made.charge}.`;
  $("foreseen").replaceChildren(...(made.half_width === null ? [] : [foreseen(made)]));
  const { total, mine } = made.balance;
  $("balance").replaceChildren(...(mine ? [budget(ownerOf(mine), mine)] : []), budget("Budget of the data set", total));
  $("explain").textContent = made.explain;
  $("go").disabled = Boolean(total.refused || (mine && mine.refused));
}

// How an answer's error bar will look, at a count that is certainly released: made up, no data takes part.
function foreseen(made) {
  const bar = made.error_bar ?? made.half_width;
  const count = Math.ceil(Math.max(2 * (made.appears_at || 0), 4 * bar, 10));
  const row = { label: `e.g. ${whole(count)}`, count, low: Math.max(0, count - bar), high: count + bar };
  return make("figure", {}, make("figcaption", { class: "quiet" }, "How the error bar of such a count would look (an example; no data was read):"),
    bars([row], "What to expect", made.confidence));
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
    if (!("entry" in answer)) throw new Error("this is no answer");
    pending = null;
    say("");
    $("answer").replaceChildren(card(answer, dataset(), await budgetBars(name)));
    $("answer").scrollIntoView({ block: "start", behavior: "smooth" });
  } catch (error) {
    if (error.status >= 402 && error.status < 500 && error.status !== 429) pending = null; // a refusal, for good
    say(error.status ? error.message : "The connection broke. Ask again: the same question is not charged twice.");
  }
  busy(false);
  plan();
});

// What is left after an answer; nothing, where the service cannot be asked: the answer is shown all the same.
async function budgetBars(name) {
  try {
    const { total, mine } = await call(`/datasets/${name}/budget`);
    return [...(mine ? [budget(ownerOf(mine), mine)] : []), budget("Budget of the data set", total)];
  } catch { return []; }
}

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
  const answer = await fetch("v1/jobs/" + job + "/events", { headers: headers() });
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
      $("stage").textContent = { reading: "Reading the data…", charging: "Charging and drawing…" }[now.stage] || now.stage;
      if (now.total > 1) { $("progress").max = now.total; $("progress").value = now.done; }
    }
  }
}

async function listAnswers() {
  try {
    const found = await call(`/datasets/${$("answers-dataset").value}/releases`);
    $("answers-list").replaceChildren(...(found.length ? found.map((one) => card(one, datasets.find((spec) => spec.name === one.dataset))) : [make("p", {}, "None yet.")]));
  } catch (error) { say(error.message); }
}
$("answers-dataset").addEventListener("input", listAnswers);

const kept = sessionStorage.getItem("token");
if (kept) enter(kept);
