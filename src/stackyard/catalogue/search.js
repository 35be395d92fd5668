// Finds packages by parts of their names and by version. The index (packages.js) is loaded at the first focus.
"use strict";
(() => {
  const UP = document.currentScript.dataset.up, HITS = 15, VERSIONS = 3, LINKS = 3;
  const field = document.getElementById("q"), status = document.getElementById("hits");
  const results = document.getElementById("results");
  let index = null, isAsked = false, timer = 0;

  window.stackyardPackages = (read) => {
    index = read;
    index.keys = read.p.map(([name]) => name.toLowerCase());
    index.stacks = [...new Set(read.r.map((module) => module.split("/")[0]))];
    show();
  };

  function load() {
    if (isAsked) return;
    isAsked = true;
    const script = document.createElement("script");
    script.src = UP + "@catalogue/packages.js";
    script.onerror = () => { status.textContent = "The list of packages cannot be loaded."; };
    document.head.append(script);
  }

  // Whether two names differ by one letter: one more, one less, another one, or two exchanged.
  function isNear(a, b) {
    if (Math.abs(a.length - b.length) > 1) return false;
    let i = 0;
    while (i < a.length && a[i] === b[i]) i++;
    const [x, y] = [a.slice(i), b.slice(i)];
    return x.slice(1) === y || x === y.slice(1) || x.slice(1) === y.slice(1) ||
      (x[0] === y[1] && x[1] === y[0] && x.slice(2) === y.slice(2));
  }

  function rank(key, words) {
    if (!words.every((word) => key.includes(word))) return words.length === 1 && isNear(key, words[0]) ? 3 : -1;
    return key === words[0] ? 0 : key.startsWith(words[0]) ? 1 : 2;
  }

  function search(text) {
    const words = text.toLowerCase().split(/[\s=<>~!,]+/).filter(Boolean);
    const version = words.length > 1 && /^v?\d/.test(words[words.length - 1]) ? words.pop().replace(/^v/, "") : "";
    const hits = [];
    index.keys.forEach((key, at) => {
      const order = rank(key, words);
      if (order < 0) return;
      const [name, all] = index.p[at];
      const versions = version ? all.filter(([each]) => each.startsWith(version)) : all;
      if (versions.length) hits.push({ order, key, name, versions });
    });
    hits.sort((a, b) => a.order - b.order || a.key.length - b.key.length || (a.key < b.key ? -1 : 1));
    const stacks = version ? [] : index.stacks.filter((stack) => words.every((word) => stack.toLowerCase().includes(word)));
    return { hits, stacks };
  }

  function make(name, text, properties) {
    const element = Object.assign(document.createElement(name), properties);
    if (text) element.textContent = text;
    return element;
  }

  const anchor = (at) => make("a", index.r[at], { href: UP + (index.a[at] || index.r[at] + ".html") });

  function numbers(runs) { // "3-5,9" in base 36, the last first
    const all = [];
    for (const run of runs.split(",")) {
      const [from, to] = run.split("-").map((digits) => parseInt(digits, 36));
      for (let at = from; at <= (to ?? from); at++) all.push(at);
    }
    return all.reverse();
  }

  function revisions(runs) {
    const all = numbers(runs);
    const cell = document.createElement("td"), rest = all.slice(LINKS);
    all.slice(0, LINKS).forEach((at) => cell.append(anchor(at), " "));
    if (rest.length) {
      const more = make("details");
      more.append(make("summary", rest.length + " more"));
      more.addEventListener("toggle", () => rest.splice(0).forEach((at) => more.append(anchor(at), " ")));
      cell.append(more);
    }
    return cell;
  }

  function rows(body, hit) {
    const shown = hit.versions.slice(-VERSIONS).reverse();
    shown.forEach(([version, runs], number) => {
      const row = body.insertRow();
      if (!number) row.append(make("th", hit.name, { scope: "row", rowSpan: shown.length }));
      row.insertCell().textContent = version;
      row.append(revisions(runs));
    });
  }

  function show() {
    const text = field.value.trim();
    document.body.classList.toggle("searching", Boolean(text));
    if (!text || !index) {
      results.replaceChildren();
      status.textContent = text ? "Loading" : "";
      return;
    }
    const { hits, stacks } = search(text), table = document.createElement("table");
    const head = table.createTHead().insertRow(), body = table.createTBody();
    for (const title of ["Package", "Version", "In"]) head.append(make("th", title, { scope: "col" }));
    hits.slice(0, HITS).forEach((hit) => rows(body, hit));
    const list = make("p");
    stacks.forEach((stack) => list.append(make("a", stack, { href: UP + (index.s[stack] || stack) + "/index.html" }), " "));
    if (stacks.length) list.prepend("Stacks: ");
    const box = make("div", "", { className: "scroll", tabIndex: 0 });
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Packages found");
    box.append(table);
    results.replaceChildren(...(stacks.length ? [list] : []), ...(hits.length ? [box] : []));
    const more = hits.length > HITS ? `; the first ${HITS} are shown` : "";
    status.textContent = hits.length ? `${hits.length} package${hits.length > 1 ? "s" : ""}${more}`
      : stacks.length ? `${stacks.length} stack${stacks.length > 1 ? "s" : ""}` : "No package of this name and version";
  }

  field.addEventListener("focus", load);
  field.addEventListener("input", () => { load(); clearTimeout(timer); timer = setTimeout(show, 60); });
  field.form.addEventListener("submit", (event) => { event.preventDefault(); load(); show(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/INPUT|TEXTAREA/.test(event.target.tagName)) { event.preventDefault(); field.focus(); }
    if (event.key === "Escape" && field.value) { field.value = ""; show(); }
  });
  if (document.activeElement === field) load();
  if (field.value) { load(); show(); } // kept by the browser on the way back

  if (navigator.clipboard) {
    document.querySelectorAll("pre.copy").forEach((block) => {
      const button = make("button", "Copy", { type: "button" });
      button.setAttribute("aria-label", "Copy: " + block.textContent);
      button.addEventListener("click", () => navigator.clipboard.writeText(block.querySelector("code").textContent)
        .then(() => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); },
              () => { button.textContent = "Select it"; }));
      const frame = make("div", "", { className: "command" });
      block.replaceWith(frame);
      frame.append(block, button);
    });
  }
})();
