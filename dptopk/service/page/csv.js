// Tables as files. A text that begins like a formula would run in a spreadsheet: an apostrophe goes before it.
const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

function cell(value) {
  const text = typeof value === "string" && FORMULA.test(value) ? "'" + value : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csv = (columns, rows) =>
  [columns, ...rows.map((row) => columns.map((name) => row[name]))].map((cells) => cells.map(cell).join(",") + "\n").join("");
