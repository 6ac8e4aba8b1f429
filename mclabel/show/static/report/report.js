// Draws the plots from the specifications that lie beside them, in the colours of the theme.
(() => {
  const palette = {
    light: ["#1c6dd0", "#c2410c", "#0f766e", "#9333b4", "#8a6200", "#be185d", "#4d6b16", "#5b5f97"],
    dark: ["#7db4ff", "#ff9460", "#4fd1c0", "#d89bf0", "#e5b94b", "#ff8dbb", "#a9cf62", "#a9adf0"],
  };
  const PAPER_WIDTH = 640; // pixels, of A4 and of Letter less margins
  const root = document.documentElement;
  let printing = false; // paper is light, and as wide as it is
  const isDark = () =>
    !printing && (root.dataset.theme === "dark" ||
    (root.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches));

  function colours() {
    const dark = isDark();
    const named = dark
      ? { ink: "#e8e6e1", quiet: "#a6a7ad", line: "#34373d", card: "#1e2024" }
      : { ink: "#1d1f23", quiet: "#5a5d64", line: "#dcd8d0", card: "#ffffff" };
    palette[dark ? "dark" : "light"].forEach((colour, i) => {
      named[`c${i}`] = colour;
    });
    return named;
  }

  // Names of colours stand where colours go, and nowhere else.
  function coloured(node, named) {
    if (Array.isArray(node)) return node.map((child) => coloured(child, named));
    if (node === null || typeof node !== "object") return node;
    const isColour = (key, value) => ["color", "fillcolor"].includes(key) && value in named;
    return Object.fromEntries(
      Object.entries(node).map(([key, value]) => [
        key, isColour(key, value) ? named[value] : coloured(value, named),
      ]),
    );
  }

  const titled = (axis) => ({ ...axis, title: { font: { size: 13 }, ...axis.title } });

  function draw(plot) {
    const { ink, quiet, line } = colours();
    const spec = coloured(JSON.parse(plot.parentElement.querySelector(".spec").textContent), colours());
    const { rows, tall, below, title: _, ...given } = spec.layout;
    const narrow = below || plot.clientWidth < 640;
    const height = (rows ? Math.max(260, 100 + 24 * rows) : tall ? 480 : 360) + (below ? 60 : narrow ? 120 : 0);
    plot.style.height = `${height}px`;
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: quiet, zeroline: false, automargin: true };
    const layout = {
      ...given,
      xaxis: titled({ ...axis, ...given.xaxis }),
      yaxis: titled({ ...axis, ...given.yaxis }),
      font: { family: "system-ui, sans-serif", size: 13, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      height,
      width: printing ? PAPER_WIDTH : undefined,
      margin: { l: 60, r: 20, t: 20, b: 54 },
      legend: narrow ? { orientation: "h", y: below ? -0.22 : -0.3 } : { x: 1.01, y: 1 },
      hoverlabel: { font: { family: "system-ui, sans-serif" } },
    };
    for (const trace of spec.data) {
      if (trace.fill) trace.fillcolor = trace.line.color + "22";
      if (trace.fill) delete trace.opacity;
    }
    Plotly.react(plot, spec.data, layout, {
      responsive: true, displaylogo: false, displayModeBar: false, staticPlot: false,
    });
  }

  const plots = [...document.querySelectorAll(".plot")];
  const drawn = new Set();
  const sight = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting || drawn.has(entry.target)) continue;
      drawn.add(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });
  plots.forEach((plot) => sight.observe(plot));
  root.addEventListener("themechange", () => drawn.forEach(draw));

  function redraw(forPrint) {
    printing = forPrint;
    plots.forEach((plot) => drawn.add(plot));
    drawn.forEach(draw);
  }
  addEventListener("beforeprint", () => redraw(true));
  addEventListener("afterprint", () => redraw(false));
})();
