// Formulas are marked by the arithmatex extension; no menu, which would be fetched on demand.
window.MathJax = {
  tex: { inlineMath: [["\\(", "\\)"]], displayMath: [["\\[", "\\]"]] },
  options: { ignoreHtmlClass: ".*", processHtmlClass: "arithmatex", enableMenu: false },
  svg: { fontCache: "local", scale: 0.92 },
};
