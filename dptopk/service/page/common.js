// What all parts of the page share. Text that comes from data or from people enters the page as text nodes only
// (textContent): nothing is ever parsed as HTML. No outside host is contacted.

export const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let token = "";

// Making elements

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function draw(name, attributes = {}, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

export const number = (value, digits = 4) =>
  value === null || value === undefined ? "–" : Number(value).toLocaleString("en", { maximumSignificantDigits: digits });
// Small numbers as people write them: 1e-7.
export const small = (value) => value > 0 && value < 1e-3 ? Number(value.toPrecision(3)).toExponential().replace("e-0", "e-") : number(value);
export const whole = (value) => Math.round(value).toLocaleString("en");
// A number that must not be more than it is: what is left of a budget.
export function atMost(value, digits = 3) {
  if (!Number.isFinite(value) || value <= 0) return number(value, digits);
  const unit = 10 ** (digits - 1 - Math.floor(Math.log10(value)));
  return number(Math.floor(value * unit * (1 + 1e-12)) / unit, digits);
}
export const percent = (share) => (100 * share).toLocaleString("en", { maximumFractionDigits: share < 0.1 ? 2 : 0 }) + "%";
// A confidence: 0.95 as 95%, 0.999 as 99.9%.
export const level = (share) => number(100 * share, 6) + "%";
export const times = (fits) => fits >= 2 ** 30 ? "without end" : `${whole(fits)} more time${fits === 1 ? "" : "s"}`;

export function table(head, rows, caption) {
  const top = make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell) =>
    make("td", typeof cell === "string" ? { class: "text" } : {}, cell instanceof Node ? cell : String(cell)))));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    make("table", {}, make("caption", { class: "quiet" }, caption), make("thead", {}, top), make("tbody", {}, ...body)));
}

export function saving(text, name, type = "text/plain", shown = name) {
  return make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name }, shown);
}

// A budget in a line, with a meter: what is used, and what a question would leave where one is named.
export function budget(name, one) {
  // A budget in ρ without δ has no finite ε.
  const spent = one.epsilon === null ? "of its ρ" : `ε about ${number(one.epsilon_spent, 3)} of ${number(one.epsilon, 3)} spent, at δ = ${small(one.delta)}`;
  const left = one.question ? `; left: ε up to ${atMost(one.epsilon_left)} for ${one.question}` : "";
  let text = `${percent(one.share)} used (${spent})`;
  if (one.refused) text += `: ${"share_after" in one ? unfit(one) : one.remaining}`;
  else if ("share_after" in one) text += `, ${percent(one.share_after)} after this question, which fits ${times(one.fits)}`;
  else text += left;
  return make("p", one.refused ? { class: "refused" } : {}, make("b", {}, name + ": "), text,
    make("meter", { min: 0, max: 1, value: one.share_after && !one.refused ? one.share_after : one.share, "aria-label": name }));
}

// Why a question does not fit, and which ε would.
function unfit(one) {
  const why = one.why ? `: ${one.why}` : "";
  if (one.largest_epsilon === null) return `this question does not fit${why}.`;
  const fits = one.largest_epsilon > 0 ? `The largest ε that fits is ${atMost(one.largest_epsilon)}.`
    : "No ε fits at this δ: choose a smaller δ, or ask the owner.";
  return `this question does not fit${why}. ${fits}`;
}

export const ownerOf = (mine) => mine.owner === "reserve" ? "The reserve, for all without a share" : "Your own part";

// What a question was, in words

export function wordsOf(question) {
  if (!question) return "a question";
  const what = question.mechanism ? mechanism(question.mechanism)
    : `top ${question.k}` + (question.epsilon ? `, ε = ${number(question.epsilon)}` : `, counts within ± ${number(question.accuracy)}`);
  const where = Object.entries(question.where || {}).map(([column, value]) => `, ${column} = ${value}`).join("");
  const each = Object.keys(question.segments || {}).map((column) => `, each ${column}`).join("");
  return what + where + each;
}

function mechanism(one) {
  const parts = Object.entries(one).filter(([name]) => name !== "name");
  const said = ([name, value]) => `${name} = ${value !== null && typeof value === "object" ? mechanism(value) : value}`;
  return `${one.name}(${parts.map(said).join(", ")})`;
}

// Talking to the service

export class Refusal extends Error {
  constructor(status, body) { super(body.message || "refused"); this.status = status; this.code = body.error; }
}

export function signed(text) { token = text; }
export const headers = (more = {}) => ({ Authorization: "Bearer " + token, ...more });

export async function call(path, options = {}) {
  const sent = headers(options.headers);
  if (options.json !== undefined) { sent["Content-Type"] = "application/json"; options.body = JSON.stringify(options.json); }
  const answer = await fetch("v1" + path, { ...options, headers: sent });
  if (!answer.ok) throw new Refusal(answer.status, await answer.json().catch(() => ({})));
  return answer.json(); // throws where the answer breaks off in the middle
}

export function say(text) { $("message").textContent = text; }

export function fresh() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "page-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
