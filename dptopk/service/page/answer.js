// An answer: chart, table, downloads; of segments, one of each.
import { draw, level, make, number, saving, table, whole, wordsOf } from "./common.js";
import { csv } from "./csv.js";

const COLUMNS = ["segment", "rank", "label", "count", "low", "high", "rank_low", "rank_high"];

// Who is protected, in words.
export function protectedOf(one) {
  const labels = one.labels_per_user === null ? "any number of labels" : one.labels_per_user === 1 ? "one label" : `at most ${one.labels_per_user} labels`;
  return `one ${one.unit}, who can affect ${labels}, changing each count by at most ${one.per_label_cap}`;
}

// The data set with the caps of its answer: events that are counted without a cap are those of a user with any number of labels.
const capsOf = (spec, parts) => {
  const moved = parts[0]?.release.sensitivity;
  return moved === undefined ? spec : { ...spec, labels_per_user: moved.l0, per_label_cap: moved.linf };
};

// The rows first; `spec` is the data set's description, `left` what is left of budgets.
export function card(answer, spec, left = []) {
  const date = answer.at.slice(0, 10), name = `${answer.dataset}-${date}-${answer.entry}`;
  const title = `${answer.dataset}: ${wordsOf(answer.question)}`;
  const parts = answer.segments || [answer];
  const block = [`Data set ${answer.dataset}, data version ${answer.version}`, `Answered ${date}`, ...(spec ? [`Protected: ${protectedOf(capsOf(spec, parts))}`] : [])];
  const notes = [...new Set(parts.map((part) => part.release.note).filter(Boolean))].join("; ");
  const charts = [], scale = largest(parts.flatMap(rowsOf)); // one for all segments, so that they can be compared
  const bodies = parts.map((part) => {
    const rows = rowsOf(part);
    const heading = part.segment === undefined ? title : `${part.segment}`;
    const chart = rows.length ? bars(rows, heading, answer.confidence, scale) : make("p", {}, "No label passed the threshold.");
    if (rows.length) charts.push([part.segment, bars(rows, heading, answer.confidence, scale, [heading === title ? title : `${title}: ${heading}`, ...block])]);
    const short = rows.length && rows.length < answer.question?.k
      ? [make("p", { class: "quiet" }, `${rows.length} of ${answer.question.k} labels are shown. A label is shown only if its noisy count passes a threshold, since a rare one could reveal ` +
        "a single person; no other label passed it, or there is none. More ε, or a larger δ, lowers the threshold.")] : [];
    const body = [chart, ...short, ...(rows.length ? [listed(rows, part.intervals, answer.confidence)] : [])];
    return part.segment === undefined ? make("div", {}, ...body) : make("section", {}, make("h3", {}, heading), ...body);
  });
  const all = parts.flatMap((part) => rowsOf(part).map((row) => (part.segment === undefined ? row : { segment: part.segment, ...row })));
  const columns = COLUMNS.filter((name) => all.length && name in all[0]);
  const links = [saving(csv(columns, all), `${name}.csv`, "text/csv", "CSV"), saving(JSON.stringify(answer, null, 1), `${name}.json`, "application/json", "JSON"),
    ...charts.map(([segment, chart]) => saving(new XMLSerializer().serializeToString(chart),
      `${name}${segment === undefined ? "" : "-" + segment.replaceAll(/[^\w-]/g, "_")}.svg`, "image/svg+xml", segment === undefined ? "SVG" : `SVG ${segment}`))];
  const counted = parts.some((part) => part.intervals), sure = level(answer.confidence);
  return make("article", { class: "card" }, make("h2", {}, title), make("p", { class: "quiet" }, block.join(". ") + "."),
    ...(counted ? [make("p", { class: "legend" }, `Counts are noisy on purpose. A bar ends at the noisy count; with probability ${sure} ` +
      "every line across a bar's end holds the count without noise.")] : []),
    ...(notes ? [make("p", {}, `Note: ${notes}.`)] : []),
    ...bodies, ...left, make("p", { class: "actions" }, "Download:", ...links),
    make("details", { class: "made" }, make("summary", {}, "How this was computed"),
      make("p", { class: "quiet" }, `Entry ${answer.entry} of the ledger, ${answer.at.slice(0, 16).replace("T", " ")} UTC; charged as ${answer.charge}.`),
      make("ul", { class: "quiet" }, ...mechanisms(parts).map((text) => make("li", {}, text)))));
}

const mechanisms = (parts) => [...new Set(parts.flatMap(({ release }) => [wordsOf({ mechanism: release.mechanism }),
  ...Object.entries(release.phases || {}).map(([phase, charge]) => `${phase}: ${charge}`)]))];

const largest = (rows) => Math.max(1, ...rows.map((row) => row.high ?? row.count ?? 1));
const rowsOf = (part) => part.release.rows.map((row, place) => ({ ...row, ...((part.intervals || [])[place] || {}) }));

function listed(rows, intervals, confidence) {
  const sure = level(confidence);
  const cells = rows.map((row) => [row.rank, String(row.label), ...(row.count === undefined ? [] : [
    whole(row.count), ...(row.low === undefined ? [] : [`${whole(row.low)} to ${whole(row.high)}`,
      row.rank_low === row.rank_high ? row.rank_low : `${row.rank_low} to ${row.rank_high}`])])]);
  const head = ["Rank", "Label", "Noisy count", `Count, ${sure}`, `Rank, ${sure}`].slice(0, cells[0].length);
  return make("details", {}, make("summary", {}, `${rows.length} row${rows.length === 1 ? "" : "s"} as a table`),
    table(head, cells, intervals ? `Intervals hold for all rows at once, with probability ${sure}.` : "The rows"));
}

// How many columns a text takes: letters of East Asia and emoji are two wide.
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const letters = (text) => [...(Intl.Segmenter ? [...new Intl.Segmenter().segment(text)].map((one) => one.segment) : text)];
const wide = (one) => (WIDE.test(one) ? 2 : 1);

function taken(all, room) {
  let used = 0, count = 0;
  while (count < all.length && used + wide(all[count]) <= room) used += wide(all[count++]);
  return count;
}

// A label in at most two lines of so many columns: broken at a blank or a slash where there is one, and cut in its
// middle where it is longer, since labels often differ at their ends.
export function wrapped(label, columns) {
  const all = letters(label.replace(/\s+/g, " ").trim());
  const first = taken(all, columns);
  if (first === all.length) return [all.join("")];
  const second = taken(all.slice(first).reverse(), columns);
  if (first + second < all.length) {
    const end = taken(all.slice().reverse(), columns - 1);
    return [all.slice(0, first).join(""), "…" + all.slice(all.length - end).join("")];
  }
  let cut = first;
  while (cut > first / 2 && !/[\s/_-]/.test(all[cut - 1])) cut -= 1;
  if (cut <= first / 2 || taken(all.slice(cut), columns) < all.length - cut) cut = first;
  return [all.slice(0, cut).join("").trim(), all.slice(cut).join("").trim()];
}

// A chart; of one that is saved by itself, `block` is the title block.
export function bars(rows, title, confidence, scale = largest(rows), block = []) {
  const narrow = window.innerWidth < 600 && !block.length;
  const width = narrow ? 300 : 720, left = narrow ? 124 : 220, right = narrow ? 56 : 70;
  const names = rows.map((row) => wrapped(String(row.label), narrow ? 15 : 27));
  const steps = names.map((lines) => (lines.length > 1 ? 40 : 26));
  const top = block.length && 20 * block.length + 8, height = steps.reduce((sum, step) => sum + step, 0) + 26;
  const most = scale;
  const x = (value) => left + (width - left - right) * Math.max(0, value) / most;
  const svg = draw("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 ${-top} ${width} ${height + top}`, role: "img",
    "font-family": "system-ui, sans-serif", "font-size": 13 });
  block.forEach((line, place) => svg.append(draw("text", { x: 4, y: 20 * place + 16 - top, "font-weight": place ? "normal" : "bold" }, line)));
  svg.append(draw("title", {}, title + ": bars are noisy counts, whiskers hold the counts without noise with probability " + level(confidence)));
  let above = 0;
  rows.forEach((row, place) => {
    const y = above + steps[place] / 2 + 2, lines = names[place];
    above += steps[place];
    const text = draw("text", { y: y + 4, "text-anchor": "end" });
    lines.forEach((line, number) => text.append(draw("tspan", { x: left - 8, y: y + 4 + 16 * (number - (lines.length - 1) / 2) }, line)));
    text.append(draw("title", {}, String(row.label)));
    svg.append(text);
    if (row.count === undefined) { svg.append(draw("text", { x: left + 6, y: y + 4, class: "quiet" }, "#" + row.rank)); return; }
    svg.append(draw("rect", { x: left, y: y - 8, width: Math.max(0, x(row.count) - left), height: 16, rx: 2, class: "bar", fill: "#4a90d9" }));
    if (row.low !== undefined)
      svg.append(draw("path", { d: `M${x(row.low)} ${y - 5}v10m0-5H${x(row.high)}m0-5v10`, class: "whisker", stroke: "#222", fill: "none" }));
    svg.append(draw("text", { x: x(row.high ?? row.count) + 6, y: y + 4 }, whole(row.count)));
  });
  svg.append(draw("path", { d: `M${left} 0V${height - 20}`, class: "axis", stroke: "#999" }));
  if (rows.some((row) => row.count !== undefined)) {
    svg.append(draw("text", { x: left, y: height - 4, class: "quiet", "text-anchor": "middle" }, "0"),
      draw("text", { x: x(most), y: height - 4, class: "quiet", "text-anchor": "middle" }, number(most, 3)));
  }
  return svg;
}
