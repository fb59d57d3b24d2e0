// Draws the charts from the specifications in the page, light or dark like the reader's system.
"use strict";
(() => {
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();

  async function draw(figure) {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    const live = figure.querySelector(".live");
    const theme = structuredClone(dark.matches ? themes.dark : themes.light);
    views.get(figure)?.finalize();
    live.hidden = false;
    figure.classList.add("drawn");
    // side by side, names would not fit a narrow screen
    if (live.clientWidth < 480) theme.legend.columns = 1;
    try {
      const view = await vegaEmbed(live, spec, {
        config: theme,
        // the editor is a web site
        actions: { export: { svg: true, png: true }, source: true, compiled: false, editor: false },
        ast: true,
        downloadFileName: figure.id,
        mode: "vega-lite",
        renderer: "svg",
        tooltip: { theme: dark.matches ? "dark" : "light" },
      });
      views.set(figure, view);
    } catch (error) {
      console.error(figure.id, error);
      live.hidden = true;
      figure.classList.remove("drawn");
    }
  }

  const drawAll = () => document.querySelectorAll("figure.chart").forEach(draw);
  dark.addEventListener("change", drawAll);
  drawAll();
})();
