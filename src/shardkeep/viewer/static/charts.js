// Charts: each element with data-chart is drawn from the JSON at that address, again after the page changed a
// part, and every data-every milliseconds. The JSON: {x, series: [{name, values}], bars, time, xlabel, log}.
"use strict";
(() => {
  const colours = ["#2f6fb0", "#c8553d", "#3b8f4f", "#8a5fb4", "#b7860b", "#1f8f94", "#b0467a", "#6b7580"];
  const charts = new Map();
  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function options(element, data) {
    const axis = () => ({ stroke: style("--ink"), grid: { stroke: style("--grid") }, ticks: { stroke: style("--grid") }, font: "12px system-ui" });
    const bars = data.bars ? { paths: uPlot.paths.bars({ size: [0.92], align: 1 }), points: { show: false } } : {};
    return {
      width: element.clientWidth, height: Number(element.dataset.height || 260),
      scales: { x: { time: Boolean(data.time) }, y: data.log ? { distr: 3 } : data.bars ? { range: (u, low, high) => [0, high * 1.05 || 1] } : {} },
      axes: [{ ...axis(), label: data.xlabel || undefined, labelSize: 20 }, { ...axis(), size: 64 }],
      legend: { show: !data.bars },
      series: [{ label: data.xlabel || "x" }, ...data.series.map((one, i) => ({
        label: one.name, stroke: colours[i % colours.length], width: 1.5, spanGaps: Boolean(data.joined),
        fill: data.bars ? colours[i % colours.length] : undefined, ...bars,
      }))],
    };
  }

  async function draw(element) {
    let data;
    try {
      const response = await fetch(element.dataset.chart);
      if (!response.ok) throw new Error();
      data = await response.json();
    } catch {
      if (!charts.has(element)) element.textContent = "The values cannot be read now; the page tries again when it is loaded again.";
      return;
    }
    if (!element.isConnected) return;
    const columns = [data.x, ...data.series.map(one => one.values)];
    const known = charts.get(element);
    if (known && known.names === JSON.stringify(data.series.map(one => one.name))) {
      known.chart.setData(columns);
      return;
    }
    if (known) known.chart.destroy();
    element.textContent = "";
    if (!data.x.length) {
      element.textContent = data.empty || "There are no values.";
      charts.delete(element);
      return;
    }
    charts.set(element, { chart: new uPlot(options(element, data), columns, element), names: JSON.stringify(data.series.map(one => one.name)) });
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
    charts.forEach(({ chart }, element) => { chart.destroy(); charts.delete(element); draw(element); });
  });
  document.addEventListener("DOMContentLoaded", () => begin(document));
  document.addEventListener("htmx:afterSettle", event => begin(event.target.parentElement || document));
})();
