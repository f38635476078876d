// The budget tool. A slider moves the error of one query, and the others give way at once, by the same formula that the
// service's convex program has without bounds: a share ρ of the total gives an error c / sqrt(ρ), and what the held queries
// leave is shared by the others as before. When the slider rests, the service divides exactly.
import { $, call, make, number, percent, saving, say, small, table } from "./common.js";
import { csv } from "./csv.js";

const START = [
  { name: "daily top 10", kind: "topk", k: 10, labels_per_user: 5, times: 30, weight: 1 },
  { name: "monthly top 50", kind: "topk", k: 50, labels_per_user: 5, times: 1, weight: 3 },
  { name: "eight totals", kind: "counts", k: 8, labels_per_user: 2, times: 1, weight: 5 },
];
const STEPS = 200, FINEST = 0.9, COARSEST = 25;
const FIELDS = [["k", "labels"], ["times", "times asked"], ["labels_per_user", "labels a user has"], ["segments", "segments"],
  ["segments_per_user", "of them a user is in"], ["weight", "weight of an error"]];
let rows = [], held = null, latest = 0, waiting, counter = 0;

class Row {
  constructor(query) {
    this.part = null; // what the service last gave: error, share
    const id = `query-${++counter}`;
    this.name = make("input", { type: "text", value: query.name, maxlength: 100, "aria-label": "name of the query" });
    this.kind = make("select", {}, make("option", { value: "topk" }, "top k"), make("option", { value: "counts" }, "counts of named labels"));
    this.kind.value = query.kind;
    this.fields = Object.fromEntries(FIELDS.map(([name]) => [name,
      make("input", { type: "number", step: "any", min: name === "weight" ? 0.001 : 1, value: query[name] ?? "" })]));
    this.slider = make("input", { type: "range", min: 0, max: STEPS, step: 1, value: STEPS / 2, id, disabled: "" });
    this.error = make("output", { for: id }, "–");
    this.even = make("span", { class: "quiet" });
    this.lock = make("input", { type: "checkbox" });
    const remove = make("button", { type: "button", "aria-label": "remove " + query.name }, "×");
    this.about = make("summary");
    const labelled = (text, input) => make("label", {}, text, input);
    this.element = make("li", { class: "card query" },
      make("div", { class: "fields" }, this.name, labelled("lock", this.lock), remove),
      make("div", { class: "wide" }, make("label", { for: id }, "error ±"), this.error, this.slider, this.even),
      make("details", {}, this.about, make("div", { class: "fields" }, labelled("kind", this.kind),
        ...FIELDS.map(([name, text]) => labelled(text, this.fields[name])))));
    remove.addEventListener("click", () => { rows = rows.filter((row) => row !== this); this.element.remove(); later(); });
    this.element.addEventListener("change", (event) => {
      if (event.target === this.slider) return;
      if (event.target !== this.lock) { this.part = null; held = held === this ? null : held; }
      this.describe();
      later();
    });
    this.slider.addEventListener("input", () => {
      held = this;
      latest++; // an answer that is on its way is to another question
      this.wanted = this.least * (this.most / this.least) ** (this.slider.value / STEPS);
      preview();
      later(600);
    });
    this.describe();
    $("queries").append(this.element);
  }

  describe() {
    const value = (name) => this.fields[name].value;
    const segments = Number(value("segments")) > 1 ? `, in ${value("segments")} segments` : "";
    this.about.textContent = (this.kind.value === "topk" ? `top ${value("k")}` : `${value("k")} counts`) +
      `, ${value("times") || 1} time${value("times") === "1" ? "" : "s"}, ${value("labels_per_user") || "any number of"} labels a user, weight ${value("weight")}${segments}`;
    this.slider.setAttribute("aria-label", "error of " + this.name.value);
    this.lock.setAttribute("aria-label", "lock the error of " + this.name.value);
    this.even.textContent = this.part ? `even split ± ${number(this.part.even_error)}` : "";
  }

  query() {
    const given = Object.fromEntries(FIELDS.map(([name]) => [name, Number(this.fields[name].value) || undefined]));
    const wish = this === held ? this.wanted : this.lock.checked && this.part ? this.shown : undefined;
    return { name: this.name.value, kind: this.kind.value, ...given, ...(wish ? { locked: wish } : {}) };
  }

  get fixed() { return this.lock.checked || this === held; }

  // The share of the total that an error costs.
  share(error) { return this.part.share * (this.part.error / error) ** 2; }

  show(error) {
    this.shown = error;
    this.error.textContent = number(error, 3);
    this.slider.setAttribute("aria-valuetext", `± ${number(error, 3)}`);
    if (this !== held) this.slider.value = STEPS * Math.log(error / this.least) / Math.log(this.most / this.least);
  }
}

// While a slider moves: the others give way.
function preview() {
  if (rows.some((row) => !row.part)) return;
  const taken = rows.filter((row) => row.fixed).reduce((sum, row) => sum + row.share(row === held ? row.wanted : row.shown), 0);
  const free = rows.filter((row) => !row.fixed), before = free.reduce((sum, row) => sum + row.part.share, 0);
  const left = Math.max(1 - taken, 1 - FINEST);
  held?.show(held.wanted);
  for (const row of free) row.show(row.part.error * Math.sqrt(before / left));
  $("divide-stage").textContent = free.length ? "About; exact when the slider rests." : "Everything is locked: unlock a query to give way.";
}

function later(delay = 300) {
  clearTimeout(waiting);
  waiting = setTimeout(divide, delay);
}

async function divide() {
  const mine = ++latest, asked = [...rows];
  if (!asked.length) { $("division").replaceChildren(); return; }
  if (asked.every((row) => row.fixed && row.part)) { say("Everything is locked: unlock a query to give way."); return; }
  $("divide-stage").textContent = "Dividing…";
  const total = { epsilon: Number($("total-epsilon").value), delta: Number($("total-delta").value) };
  try {
    const made = await call("/divide", { method: "POST", json: { ...total, queries: asked.map((row) => row.query()) } });
    if (mine !== latest) return;
    settle(asked, made);
    report(made, total);
    say("");
    $("divide-stage").textContent = "";
  } catch (error) {
    if (mine !== latest) return;
    if (error.status === 429) { later(1200); return; }
    $("divide-stage").textContent = "";
    say(error.message);
  }
}

// What the service gave becomes the new position of every slider, and says how far each can go.
function settle(asked, made) {
  asked.forEach((row, place) => { row.part = made.parts[place]; });
  for (const row of asked) {
    const others = asked.filter((one) => one !== row && one.lock.checked).reduce((sum, one) => sum + one.part.share, 0);
    row.least = row.part.error * Math.sqrt(row.part.share / (FINEST * Math.max(1 - others, 0.02)));
    row.most = Math.max(row.least * COARSEST, 2 * row.part.error);
    row.slider.disabled = asked.length < 2;
    const was = held;
    held = row === held ? row : null;
    if (row === was) row.slider.value = STEPS * Math.log(row.part.error / row.least) / Math.log(row.most / row.least);
    row.show(row.part.error);
    held = was;
    row.describe();
  }
  if (held) held.wanted = held.part.error;
}

function report(made, total) {
  const less = 1 - made.weighted_error / made.even_error;
  const schedule = csv(["day", "query", "mechanism"], made.schedule);
  $("division").replaceChildren(
    make("p", {}, `Together ε = ${number(made.epsilon)} at δ = ${small(made.delta)} (${made.bound}). The weighted error is ` +
      `${number(made.weighted_error)}, ` + (less >= 0 ? `${percent(less)} below` : `${percent(-less)} above`) +
      ` that of an even split of the same total (${number(made.even_error)}).`),
    make("p", { class: "actions" }, "Download:", saving(made.registered + "\n", "registration.txt"), saving(schedule, "schedule.csv", "text/csv"),
      saving(toml(made, total), "plan.toml")),
    table(["Query", "Share", "Error ±", "Even split ±", "ε by itself"],
      made.parts.map((part) => [part.query.name, percent(part.share), number(part.error), number(part.even_error), number(part.epsilon, 3)]), "The division"),
    make("details", {}, make("summary", {}, "The registration for the ledger"), make("pre", { tabindex: 0 }, made.registered)));
}

// The same plan for `dptopk budget plan.toml`.
function toml(made, total) {
  const value = (one) => typeof one === "string" ? JSON.stringify(one) : String(one);
  const queries = made.parts.map((part) => "[[query]]\n" + Object.entries(part.query).filter(([, one]) => one !== null)
    .map(([name, one]) => `${name} = ${value(one)}\n`).join(""));
  return `epsilon = ${total.epsilon}\ndelta = ${total.delta}\n\n${queries.join("\n")}`;
}

export function begin() { if (!rows.length) { rows = START.map((query) => new Row(query)); later(0); } }

$("add-query").addEventListener("click", () => {
  rows.push(new Row({ name: `query ${counter + 1}`, kind: "topk", k: 10, labels_per_user: 5, times: 1, weight: 1 }));
  later();
});
for (const id of ["total-epsilon", "total-delta"]) $(id).addEventListener("change", () => later());
