const rows = [...document.querySelectorAll("#differences tbody tr")];
const words = rows.map(row => row.textContent.toLowerCase());
const search = document.getElementById("search");
const matching = document.getElementById("matching");
const all = matching?.textContent;
function show() {
  const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, i) => { row.hidden = !wanted.every(word => words[i].includes(word)); shown += !row.hidden; });
  matching.textContent = wanted.length ? `${shown} of ${rows.length} rows match` : all;
}
if (search) {
  document.querySelector(".search").hidden = false;
  search.addEventListener("input", show);
  if (location.hash) { search.value = decodeURIComponent(location.hash.slice(1)); show(); }
}
