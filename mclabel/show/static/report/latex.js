// LaTeX of the report, typeset as MathML, so that the report needs no font files.
document.addEventListener("DOMContentLoaded", () => {
  for (const node of document.querySelectorAll(".prose:not(.code *), .quoted:not(.code)")) {
    for (const text of [...node.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE)) {
      for (const found of latex.formulas(text.data).reverse()) {
        const math = document.createElement("span");
        math.className = found.display ? "math display" : "math";
        text.splitText(found.end);
        math.append(text.splitText(found.start));
        text.after(math);
        latex.typeset(math, found, "mathml");
      }
    }
  }
});
