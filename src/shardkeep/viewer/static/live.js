// Parts of a page that change while it is open: what stays the same is not touched, so that the focus, a selection
// and the scrolled place of a table are kept; and a notice while the server does not answer.
"use strict";
const live = (() => {
  const problems = new Map();
  let answered = new Date();

  function report(element, problem) {
    if (problem) problems.set(element, problem);
    else { problems.delete(element); answered = new Date(); }
    for (const one of problems.keys()) if (!one.isConnected) problems.delete(one);
    const notice = document.getElementById("connection");
    const text = [...problems.values()][0] || "";
    if (notice.textContent !== text) notice.textContent = text;
  }
  const silent = element => report(element, problems.get(element) ||
    `No answer from the server since ${answered.toLocaleTimeString()}; shardkeep view may have ended. The page shows the values of that time.`);
  function refused(element, text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    report(element, "This cannot be read again: " + (page.querySelector(".notice p") || page.body).textContent.trim());
  }

  function update(old, fresh) {
    const chart = old.dataset?.chart;
    if (old.nodeName !== fresh.nodeName || chart !== fresh.dataset?.chart) { old.replaceWith(fresh); return; }
    if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
    if (chart) return; // charts.js draws what is in it
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    updateChildren(old, fresh);
  }
  function updateChildren(old, fresh) {
    const wanted = [...fresh.childNodes];
    wanted.forEach((one, i) => i < old.childNodes.length ? update(old.childNodes[i], one) : old.append(one));
    while (old.childNodes.length > wanted.length) old.lastChild.remove();
  }
  htmx.defineExtension("update", {
    isInlineSwap: style => style === "update",
    handleSwap(style, target, fragment, settling) {
      if (style !== "update") return false;
      const whole = fragment.firstElementChild;
      if (target.id && whole?.id === target.id) update(target, whole);
      else {
        // The white space around a part is not the same in a page and in an answer.
        for (const one of [...target.childNodes, ...fragment.childNodes]) {
          if (one.nodeType === Node.TEXT_NODE && !one.data.trim()) one.remove();
        }
        updateChildren(target, fragment);
      }
      settling.elts.push(target);
      return [target];
    },
  });

  addEventListener("htmx:beforeRequest", event => {
    if (document.hidden && event.detail.elt.matches("[hx-ext=update]")) event.preventDefault();
  });
  addEventListener("htmx:sendError", event => silent(event.detail.elt));
  addEventListener("htmx:timeout", event => silent(event.detail.elt));
  addEventListener("htmx:responseError", event => refused(event.detail.elt, event.detail.xhr.responseText));
  addEventListener("htmx:afterRequest", event => { if (event.detail.successful) report(event.detail.elt, ""); });
  return { answered: element => report(element, ""), silent, refused };
})();
