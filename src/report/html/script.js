// Filters the table of images. Without this the page says the same.
"use strict";
(() => {
  const line = document.getElementById("filter");
  const input = line.querySelector("input");
  const told = line.querySelector("span");
  const rows = [...document.querySelectorAll("#images tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  line.hidden = false;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    told.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
})();
