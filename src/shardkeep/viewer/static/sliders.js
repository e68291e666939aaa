// The value of a slider, in the <output> that names it in its for attribute, while it is moved.
"use strict";
document.addEventListener("input", ({ target }) => {
  const output = target.type === "range" && target.parentElement.querySelector(`output[for="${target.id}"]`);
  if (!output) return;
  output.value = (target.value / (target.dataset.scale || 1)).toLocaleString("en-US") + (target.dataset.unit || "");
  target.setAttribute("aria-valuetext", output.value);
});
