// Draws the plots of a page with uPlot. The page brings every text; the table below a plot has the same for those who do not see it.
"use strict";

const HEIGHT = 150;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A value between two that are not known has no line to be seen by.
function alone(plot, series) {
  const values = plot.data[series];
  return values.flatMap((value, index) => value != null && values[index - 1] == null && values[index + 1] == null ? [index] : []);
}

function axis(marks, more) {
  return {
    stroke: () => colour("--soft"),
    grid: { stroke: () => colour("--line"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
    splits: () => marks.map(([value]) => value),
    values: () => marks.map(([, text]) => text),
    ...more,
  };
}

function draw(box) {
  const { bars, at, values, texts, up, along } = JSON.parse(box.dataset.plot);
  const line = () => colour("--plot");
  const plot = new uPlot({
    width: box.clientWidth,
    height: HEIGHT,
    padding: [8, 24, 0, 0],
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { range: [along[0][0], along.at(-1)[0]] }, y: { range: [0, up.at(-1)[0] || 1] } },
    axes: [axis(along, { grid: { show: false }, size: 24 }), axis(up, { size: 68 })],
    series: [
      { value: (_, seconds) => seconds == null ? "" : `from ${new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC:` },
      {
        value: (_, value, series, index) => index == null ? "" : texts[index],
        stroke: line,
        fill: bars ? line : undefined,
        width: bars ? 0 : 1.5,
        paths: bars ? uPlot.paths.bars({ size: [0.8], align: 1 }) : uPlot.paths.linear(),
        points: bars ? { show: false } : { show: false, size: 4, filter: alone, stroke: line, fill: line },
      },
    ],
  }, [at, values], box);
  new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: HEIGHT })).observe(box);
  new MutationObserver(() => plot.redraw()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

document.querySelectorAll(".plot").forEach(draw);
