"use strict";
(function () {
  const $$ = (selector, root) => Array.from((root || document).querySelectorAll(selector));
  const root = document.documentElement;

  // ---- data: JSON, gzip, base64; unpacked when first needed ------------------------------------------------
  async function unpack(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }
  const once = (id) => { let found; return () => (found = found || unpack(id)); };
  const charts = once("charts-data"), finding = once("finding-data");

  const sources = {
    rows: (chart) => chart.rows,
    distributions: (chart, all, layers) => chart.distributions.flatMap((index) => {
      const one = all.distributions[index];
      const name = layers[one.layer] || one.layer;
      return one.points.quantile.map((q, i) => ({ name, q, ns: one.points.latency_ns[i] }));
    }),
    series: (chart, all) => chart.series.flatMap((index) => {
      const one = all.series[index];
      const shared = { subject: one.subject, repeat: one.repeat_index + 1, layer: one.step_key.split("/")[0] };
      return one.points.t_s.map((t, i) => ({ t, v: one.points.value[i], ...shared }));
    }),
  };

  // ---- charts: drawn when they come near, or when the browser is idle -------------------------------------
  // `ast` keeps Vega from compiling expressions to code, which the content security policy forbids.
  const options = { actions: false, ast: true, renderer: "svg", defaultStyle: false, tooltip: { theme: "page" } };
  const clone = (value) => JSON.parse(JSON.stringify(value));
  const state = new WeakMap();
  let pending = 0, failed = 0;

  // What is folded away still has a width, so the fold itself is asked.
  const folded = (element) => !element.clientWidth || element.closest("details:not([open])") !== null;

  async function draw(element) {
    const id = element.dataset.chart;
    if (state.get(element) === id || folded(element)) return;
    state.set(element, id);
    pending += 1;
    try {
      const known = await charts();
      const chart = known.charts[id];
      if (!chart) { element.classList.add("empty"); return; }
      const spec = clone(known.templates[chart.template]);
      const source = Object.keys(sources).find((name) => chart[name]);
      const all = source === "rows" ? null : await finding();
      spec.datasets = { rows: sources[source](chart, all, known.layers) };
      await vegaEmbed(element, spec, options);
      const svg = element.querySelector("svg");
      if (svg) { svg.setAttribute("role", "img"); svg.setAttribute("aria-label", chart.about || id); }
      element.classList.add("drawn");
    } catch (error) {
      failed += 1;
      element.classList.add("failed");
      element.textContent = "This chart could not be drawn: " + error.message;
      console.error(error);
    } finally {
      pending -= 1;
      root.dataset.drawn = String($$(".chart.drawn").length);
      root.dataset.failed = String(failed);
    }
  }

  const all = $$(".chart");
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "400px" });
  all.forEach((element) => near.observe(element));
  // What is in sight is drawn at once; observers wait for a frame, which a printer or a hidden tab never gives.
  all.filter((e) => !folded(e) && e.getBoundingClientRect().top < innerHeight + 400).forEach(draw);

  const IDLE_LIMIT = 60;
  const idle = (work) => (window.requestIdleCallback ? requestIdleCallback(work, { timeout: 250 }) : setTimeout(work, 30));
  const visible = () => all.filter((e) => !folded(e) && !e.classList.contains("drawn") && !e.classList.contains("empty"));
  let idleCount = 0;
  (function next() {
    idle(() => {
      const rest = visible().filter((e) => state.get(e) !== e.dataset.chart);
      if (!rest.length || idleCount >= IDLE_LIMIT) { root.dataset.idle = "done"; return; }
      idleCount += 1;
      draw(rest[0]).then(next);
    });
  })();

  // ---- commands: written when their step is opened ---------------------------------------------------------
  const commands = once("commands-data");
  $$("[data-commands]").forEach((step) => step.addEventListener("toggle", async () => {
    if (!step.open || step.querySelector(".code")) return;
    const made = (tag, name, text) => Object.assign(document.createElement(tag), { className: name, textContent: text });
    for (const one of (await commands())[step.dataset.commands]) {
      const box = made("div", "code", ""), pre = made("pre", "", "");
      const button = Object.assign(made("button", "", "Copy"), { type: "button" });
      button.dataset.copy = "";
      pre.append(made("code", "", one.line));
      box.append(pre, button);
      step.append(made("p", "fine", one.about), box);
    }
  }));

  // ---- tables on a narrow screen: every cell says which figure it is (page.css) ----------------------------
  $$("table.ladder").forEach((table) => {
    const names = $$("thead th", table).map((th) => th.textContent);
    $$("tbody td", table).forEach((td) => { if (td.colSpan === 1) td.dataset.label = names[td.cellIndex] || ""; });
  });

  // ---- metric of the ladder -------------------------------------------------------------------------------
  $$("[data-metric]").forEach((button) => button.addEventListener("click", () => {
    $$("[data-metric]").forEach((b) => b.setAttribute("aria-pressed", String(b === button)));
    $$("[data-ladder]").forEach((element) => {
      element.dataset.chart = "ladder-" + element.dataset.ladder + "-" + button.dataset.metric;
      draw(element);
    });
  }));

  // ---- theme: colours are CSS variables, so nothing is drawn again -----------------------------------------
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const toggle = document.getElementById("theme");
  const name = () => toggle.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours");
  toggle.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("bathyscope-theme", root.dataset.theme); } catch (e) { /* nothing to keep it in */ }
    name();
  });
  name();

  // ---- copying and downloading ----------------------------------------------------------------------------
  function copy(text) {
    if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    return Promise.resolve();
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    copy(button.parentElement.querySelector("code").textContent).then(() => {
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  });

  function download(fileName, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = fileName;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  async function expanded() {
    const whole = clone(await finding());
    const rows = (points, a, b) => points[a].map((value, i) => ({ [a]: value, [b]: points[b][i] }));
    (whole.series || []).forEach((one) => { one.points = rows(one.points, "t_s", "value"); });
    (whole.distributions || []).forEach((one) => { one.points = rows(one.points, "quantile", "latency_ns"); });
    return JSON.stringify(whole, null, 1);
  }
  const stem = "bathyscope-" + document.body.dataset.name.replace(/[^A-Za-z0-9.-]+/g, "-");
  $$("[data-download]").forEach((button) => button.addEventListener("click", async () => {
    if (button.dataset.download === "csv") download(stem + ".csv", "text/csv", await unpack("csv-data"));
    else download(stem + ".json", "application/json", await expanded());
  }));

  // ---- printing: everything that is open is drawn first ----------------------------------------------------
  document.getElementById("print").addEventListener("click", async () => {
    for (const element of visible()) await draw(element);
    print();
  });

  // ---- where the reader is --------------------------------------------------------------------------------
  const links = new Map($$("nav a").map((a) => [a.hash.slice(1), a]));
  const here = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((a) => a.removeAttribute("aria-current"));
      const link = links.get(entry.target.id);
      if (link) link.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  $$("main > section[id]").forEach((section) => here.observe(section));
})();
