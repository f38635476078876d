// For who owns the data: spending over time and by analyst, and what fits.
import { $, budget, call, draw, make, number, percent, say, small, table, times, wordsOf } from "./common.js";

export async function showSpending() {
  try {
    const name = $("owner-dataset").value;
    const [spent, now] = await Promise.all([call(`/datasets/${name}/spending`), call(`/datasets/${name}/budget`)]);
    const total = now.total;
    const people = new Map(Object.entries(spent.analysts).map(([who, one]) => [who, [who, one.queries, one.spent]]));
    for (const who of Object.keys(spent.limits)) if (!people.has(who)) people.set(who, [who, 0, "nothing"]);
    const rows = [...people.values()].map(([who, queries, charge]) => [who, queries,
      who in spent.limits ? used(who, spent.limits[who]) : "no part of their own", charge]);
    $("spending").replaceChildren(
      make("p", {}, `ε = ${number(total.epsilon)}, δ = ${small(total.delta)} for everything, at every moment; ` +
        `${spent.renewals} renewal(s).`),
      budget("Budget of the data set", total),
      spent.over_time.length ? line(spent.over_time) : make("p", {}, "Nothing was asked yet."),
      ...(rows.length ? [table(["Analyst", "Questions", "Part used", "Charged"], rows, "By analyst")] : []),
      ...(now.fits.length ? [table(["Question", "Fits"], now.fits.map((one) => [wordsOf(one.question), times(one.fits)]),
        "What fits, of questions that were asked before")] : []),
      make("details", {}, make("summary", {}, "What is left, as charges"), make("pre", { tabindex: 0 }, total.remaining)));
  } catch (error) { say(error.message); }
}

function used(who, share) {
  return make("span", {}, percent(share) + " ", make("meter", { min: 0, max: 1, value: share, "aria-label": "part used by " + who }));
}

function line(points) {
  const width = window.innerWidth < 600 ? 360 : 720, height = 220, left = 50, bottom = 30;
  const at = points.map((point) => Date.parse(point.at)), first = at[0], last = Math.max(at.at(-1), first + 1);
  const most = Math.max(...points.map((point) => point.share), 1e-9);
  const x = (time) => left + (width - left - 20) * (time - first) / (last - first);
  const y = (share) => 10 + (height - bottom - 10) * (1 - share / most);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(draw("title", {}, "Share of the budget used over time"));
  let path = `M${x(first)} ${y(0)}`;
  points.forEach((point, place) => { path += `H${x(at[place])}V${y(point.share)}`; });
  const day = (point) => point.at.slice(0, 16).replace("T", " ");
  svg.append(draw("path", { d: `M${left} 10V${height - bottom}H${width - 20}`, class: "axis" }), draw("path", { d: path, class: "line" }),
    draw("text", { x: left - 6, y: y(most) + 5, "text-anchor": "end" }, percent(most)),
    draw("text", { x: left - 6, y: y(0) + 4, "text-anchor": "end" }, "0"),
    draw("text", { x: left, y: height - 8 }, day(points[0])),
    draw("text", { x: width - 20, y: height - 8, "text-anchor": "end" }, day(points.at(-1))));
  return svg;
}

$("owner-dataset").addEventListener("input", showSpending);
