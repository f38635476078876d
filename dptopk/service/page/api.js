// Shows openapi.json as a page; everything enters it as text.
"use strict";

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  return schema.type === "array" ? kind(schema.items) + "[]" : schema.type || "";
}

fetch("openapi.json").then((answer) => answer.json()).then((description) => {
  const sections = [];
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, one] of Object.entries(methods)) {
      const lines = (one.parameters || []).map((item) => `${item.in} ${item.name}: ${kind(item.schema)}. ${item.description || ""}`);
      const body = one.requestBody && Object.values(one.requestBody.content)[0].schema;
      if (body) lines.push("body: " + kind(body));
      const answers = Object.entries(one.responses).map(([status, item]) => `${status} ${item.description}`);
      sections.push(make("section", { class: "card" }, make("h2", {}, `${method.toUpperCase()} ${path}`),
        make("p", {}, one.description || one.summary), make("ul", {}, ...lines.map((line) => make("li", {}, line))),
        make("p", { class: "quiet" }, answers.join(" · "))));
    }
  }
  for (const [name, schema] of Object.entries(description.components.schemas)) {
    const fields = Object.entries(schema.properties || {}).map(([field, one]) =>
      make("li", {}, `${field}: ${kind(one)}${"default" in one ? ", default " + JSON.stringify(one.default) : ""}. ${one.description || ""}`));
    sections.push(make("section", { class: "card" }, make("h2", {}, name), make("p", {}, schema.description || ""), make("ul", {}, ...fields)));
  }
  document.getElementById("paths").append(...sections);
});
