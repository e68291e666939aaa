// Charts: each element with data-chart is drawn from the JSON at that address, again after the page changed a
// part, and every data-every milliseconds; data-name is the name of the image. The JSON: {x, series: [{name, values}],
// bars, time, xlabel, log}.
"use strict";
(() => {
  const colours = ["#2f6fb0", "#c8553d", "#3b8f4f", "#8a5fb4", "#b7860b", "#1f8f94", "#b0467a", "#6b7580"];
  const charts = new Map(), asking = new Set();
  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The curves are an image with a name; its legend is a group of buttons, which show and hide the curves.
  function build(element, data, hidden) {
    const picture = document.createElement("div"), legend = document.createElement("div");
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", element.dataset.name);
    legend.setAttribute("role", "group");
    legend.setAttribute("aria-label", "Curves that are shown");
    element.replaceChildren(picture, legend);
    const chart = new uPlot(options(element, data, hidden), [data.x, ...data.series.map(one => one.values)], picture);
    const table = picture.querySelector(".u-legend");
    if (!table) { legend.remove(); return chart; }
    legend.append(table);
    for (const one of [table, ...table.querySelectorAll("*")]) one.setAttribute("role", "none");
    table.querySelectorAll("th").forEach((label, i) => {
      if (!i) return; // the axis across
      label.setAttribute("role", "button");
      label.tabIndex = 0;
      const show = () => label.setAttribute("aria-pressed", chart.series[i].show);
      show();
      label.addEventListener("click", show);
      label.addEventListener("keydown", event => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        label.click();
      });
    });
    return chart;
  }

  function options(element, data, hidden) {
    const axis = () => ({ stroke: style("--ink"), grid: { stroke: style("--grid") }, ticks: { stroke: style("--grid") }, font: "12px system-ui" });
    const bars = data.bars ? { paths: uPlot.paths.bars({ size: [0.92], align: 1 }), points: { show: false } } : {};
    return {
      width: element.clientWidth, height: Number(element.dataset.height || 260),
      scales: { x: { time: Boolean(data.time) }, y: data.log ? { distr: 3 } : data.bars ? { range: (u, low, high) => [0, high * 1.05 || 1] } : {} },
      axes: [{ ...axis(), label: data.xlabel || undefined, labelSize: 20 }, { ...axis(), size: 64 }],
      legend: { show: !data.bars },
      series: [{ label: data.xlabel || (data.time ? "time" : "x") }, ...data.series.map((one, i) => ({
        label: one.name, show: !hidden.has(one.name), stroke: colours[i % colours.length], width: 1.5, spanGaps: Boolean(data.joined),
        fill: data.bars ? colours[i % colours.length] : undefined, ...bars,
      }))],
    };
  }

  async function draw(element) {
    if (asking.has(element)) return;
    let data;
    asking.add(element);
    try {
      const response = await fetch(element.dataset.chart, { signal: AbortSignal.timeout(20000) });
      if (!response.ok) live.refused(element, await response.text());
      else { data = await response.json(); live.answered(element); }
    } catch {
      live.silent(element);
    }
    asking.delete(element);
    if (!data) {
      if (!charts.has(element)) element.textContent = "The values cannot be read now.";
      return;
    }
    if (!element.isConnected) return;
    const known = charts.get(element), names = JSON.stringify(data.series.map(one => one.name));
    if (known && known.names === names && data.x.length) {
      const { chart } = known, { min, max } = chart.scales.x, steps = chart.data[0];
      const isZoomed = min > steps[0] || max < steps[steps.length - 1];
      chart.setData([data.x, ...data.series.map(one => one.values)], !isZoomed);
      if (isZoomed) chart.redraw();
      return;
    }
    const hidden = new Set(known ? known.series.filter((_, i) => !known.chart.series[i + 1].show).map(one => one.name) : []);
    if (known) known.chart.destroy();
    charts.delete(element);
    if (!data.x.length) element.textContent = data.empty || "There are no values.";
    else charts.set(element, { chart: build(element, data, hidden), series: data.series, names });
  }

  function begin(root) {
    for (const element of root.querySelectorAll("[data-chart]")) {
      if (charts.has(element) || element.dataset.begun) continue;
      element.dataset.begun = "1";
      draw(element);
      if (element.dataset.every) {
        const timer = setInterval(() => {
          if (!element.isConnected) { clearInterval(timer); charts.delete(element); } else if (!document.hidden) draw(element);
        }, Number(element.dataset.every));
      }
    }
  }

  let frame = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => charts.forEach(({ chart }, element) => chart.setSize({ width: element.clientWidth, height: chart.height })));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    charts.forEach((known, element) => { known.names = ""; draw(element); }); // in other colours
  });
  document.addEventListener("DOMContentLoaded", () => begin(document));
  document.addEventListener("htmx:afterSettle", event => begin(event.target.parentElement || document));
})();
