// LaTeX in texts, for the viewer, the annotation page and the report. This file is not a module,
// because the report cannot load modules.
const latex = (() => {
  const MAX_FORMULA = 2000; // characters; longer formulas are shown as source text
  const MAX_FORMULAS = 300; // typeset formulas per text
  const MATH = new RegExp(
    [
      String.raw`\$\$([^$]+)\$\$`,
      String.raw`\\\[([\s\S]+?)\\\]`,
      String.raw`\\\(([\s\S]+?)\\\)`,
      String.raw`\$(?! )((?:\\.|[^$\\\n])+?)(?<![ \\])\$(?!\d)`,
      String.raw`(\\boxed\{(?:[^{}\n]|\{(?:[^{}\n]|\{[^{}\n]*\})*\})*\})`,
      String.raw`(\\begin\{((?:align|equation|gather|multline)\*?)\}[\s\S]+?\\end\{\7\})`,
    ].join("|"),
    "g",
  );
  // KaTeX replaces commands that need trust by their names. These macros show their text argument, or
  // the whole formula as source text.
  const showText = (context) => {
    context.lexer.setCatcode("%", 13); // in an address, % does not begin a comment
    const [, text] = context.consumeArgs(2);
    context.lexer.setCatcode("%", 14);
    return { tokens: text, numArgs: 0 };
  };
  const showSource = () => { throw new Error("shown as source text"); };
  const UNTRUSTED = {
    "\\href": showText, "\\htmlClass": showText, "\\htmlId": showText, "\\htmlStyle": showText, "\\htmlData": showText,
    "\\url": showSource, "\\includegraphics": showSource,
  };

  /** Return the formulas in a text, each with its start, its end, its LaTeX and its display style. */
  const formulas = (text) =>
    [...text.matchAll(MATH)].map((match) => ({
      start: match.index, end: match.index + match[0].length, formula: match.slice(1).find((group) => group !== undefined),
      display: /^(\$\$|\\\[|\\begin)/.test(match[0]),
    })).filter(({ formula }) => formula.length <= MAX_FORMULA).slice(0, MAX_FORMULAS);

  /** Replace the text of a node by its typeset formula. Invalid LaTeX remains source text. */
  const typeset = (node, { formula, display }, output = "htmlAndMathml") => {
    const draft = document.createElement("span");
    try {
      katex.render(formula, draft, {
        displayMode: display, output, throwOnError: true, trust: false, strict: "ignore", maxSize: 20, maxExpand: 200,
        macros: { ...UNTRUSTED },
      });
    } catch {
      node.classList.add("broken");
      node.title = "not valid LaTeX";
      return;
    }
    node.replaceChildren(draft);
  };
  return { formulas, typeset };
})();
