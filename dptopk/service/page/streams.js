// Streams: the totals of chosen labels, day by day, with the noise that is on them.
import { $, call, draw, level, make, number, say, table, whole } from "./common.js";

const MOST_LINES = 4;
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];
let stream, answers = [], chosen = [];

const at = () => `/datasets/${encodeURIComponent($("streams-dataset").value)}/streams`;

export async function listStreams() {
  try {
    const found = $("streams-dataset").value ? await call(at()) : [];
    $("stream").replaceChildren(...found.map((one) => make("option", { value: one.stream }, one.stream)));
    $("stream-ask").hidden = true;
    if (found.length) await read();
    else $("stream-chart").replaceChildren(make("p", {}, "None yet."));
  } catch (error) { say(error.message); }
}

async function read(keep = []) {
  answers = [];
  do {
    stream = await call(`${at()}/${$("stream").value}/days?first=${answers.length + 1}`);
    answers.push(...stream.answers);
  } while (stream.answers.length === 100 && answers.length < stream.days);
  const last = answers.length ? rowsOf(answers.at(-1)).map((row) => row.label) : [];
  chosen = keep.length ? keep : last.slice(0, MOST_LINES);
  show();
}

const rowsOf = (answer) => answer.release.rows.map((row) => ({ ...row, label: String(row.label) }));
const dayOf = (day) => {
  if (!stream.first_day) return `day ${day}`;
  return new Date(Date.parse(stream.first_day) + (day - 1) * 86400000).toISOString().slice(0, 10);
};

function show() {
  const next = answers.length + 1, over = next > stream.days;
  $("stream-ask").hidden = over;
  $("stream-ask").textContent = `Ask for ${dayOf(over ? stream.days : next)}`;
  $("stream-about").textContent = `The top ${stream.k} of all days so far; ${answers.length} of ${stream.days} days are answered. ` +
    `Charged at once as ${stream.charge}: a further day costs nothing.`;
  const labels = [...new Set(answers.flatMap((one) => rowsOf(one).map((row) => row.label)))].sort();
  const boxes = labels.map((label) => {
    const box = make("input", { type: "checkbox" });
    box.checked = chosen.includes(label);
    box.disabled = !box.checked && chosen.length >= MOST_LINES;
    box.addEventListener("change", () => {
      chosen = box.checked ? [...chosen, label] : chosen.filter((one) => one !== label);
      show();
      [...$("stream-labels").querySelectorAll("label")].find((one) => one.textContent === label).firstChild.focus();
    });
    return make("label", {}, box, label);
  });
  $("stream-labels").replaceChildren(...boxes);
  const sure = level(stream.confidence);
  $("stream-chart").replaceChildren(...(answers.length ? [make("figure", {}, chart(), make("figcaption", { class: "quiet" },
    `Noisy totals; ${sure} of the noise on a total is within its bar, each by itself. Where a line has a gap the label was not shown.`)), listed(sure)] : [make("p", {}, "No day was asked yet.")]));
}

const points = (label) => answers.flatMap((answer) => {
  const row = rowsOf(answer).find((one) => one.label === label);
  return row && row.count !== undefined ? [{ day: answer.day, count: row.count, bar: stream.half_width[answer.day - 1] }] : [];
});

function listed(sure) {
  const rows = answers.map((answer) => [dayOf(answer.day), `± ${whole(stream.half_width[answer.day - 1])}`, ...chosen.map((label) => {
    const row = rowsOf(answer).find((one) => one.label === label);
    return row && row.count !== undefined ? whole(row.count) : "–";
  })]);
  return make("details", {}, make("summary", {}, "As a table"), table(["Day", `${sure} of the noise`, ...chosen], rows, "Noisy totals"));
}

function chart() {
  const narrow = window.innerWidth < 600;
  const width = narrow ? 360 : 720, height = 260, left = 60, right = narrow ? 16 : 24, top = 14 + 18 * chosen.length, bottom = 30;
  const lines = chosen.map(points), all = lines.flat(), days = answers.length;
  const most = Math.max(1, ...all.map((one) => one.count + one.bar));
  const x = (day) => left + (width - left - right) * (days < 2 ? 0.5 : (day - 1) / (days - 1));
  const y = (count) => height - bottom - (height - top - bottom) * Math.max(0, count) / most;
  const svg = draw("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(draw("title", {}, `Noisy totals of ${chosen.join(", ") || "no label"}, day by day`),
    draw("path", { d: `M${left} ${top}V${height - bottom}H${width - right}`, class: "axis", stroke: "#999", fill: "none" }),
    draw("text", { x: left - 6, y: height - bottom + 4, "text-anchor": "end", class: "quiet" }, "0"),
    draw("text", { x: left - 6, y: top + 4, "text-anchor": "end", class: "quiet" }, number(most, 3)),
    draw("text", { x: x(1), y: height - 8, "text-anchor": days < 2 ? "middle" : "start", class: "quiet" }, dayOf(1)));
  if (days > 1) svg.append(draw("text", { x: x(days), y: height - 8, "text-anchor": "end", class: "quiet" }, dayOf(days)));
  lines.forEach((line, place) => {
    const name = chosen[place], key = 14 + 18 * place;
    const path = line.map((one, i) => `${i && line[i - 1].day === one.day - 1 ? "L" : "M"}${x(one.day)} ${y(one.count)}`).join("");
    const bars = line.map((one) => `M${x(one.day)} ${y(one.count - one.bar)}V${y(one.count + one.bar)}`).join("");
    svg.append(draw("path", { d: bars, class: "whisker", stroke: "#222", fill: "none" }),
      draw("path", { d: path, class: "line", stroke: "#4a90d9", fill: "none", "stroke-dasharray": DASHES[place] }),
      draw("path", { d: `M${left} ${key - 4}h34`, class: "line", stroke: "#4a90d9", fill: "none", "stroke-dasharray": DASHES[place] }),
      draw("text", { x: left + 42, y: key }, name.length > 40 ? name.slice(0, 39) + "…" : name));
    for (const one of line) svg.append(draw("circle", { cx: x(one.day), cy: y(one.count), r: days > 60 ? 1.5 : 3, class: "bar", fill: "#4a90d9" }));
  });
  return svg;
}

$("streams-dataset").addEventListener("input", listStreams);
$("stream").addEventListener("input", () => read().catch((error) => say(error.message)));
$("stream-ask").addEventListener("click", async () => {
  $("stream-ask").disabled = true;
  try {
    say("");
    const made = await call(`${at()}/${stream.stream}/days`, { method: "POST", json: { day: String(answers.length + 1) } });
    await read(chosen);
    if (made.job) say("The answer is not there yet: ask again in a moment.");
  } catch (error) { say(error.message); }
  $("stream-ask").disabled = false;
});
