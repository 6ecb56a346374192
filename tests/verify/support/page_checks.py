"""Finds the faults of a page as a real browser shows it. Thresholds: WCAG 2.1, level AA."""

from __future__ import annotations

from collections import Counter

from tests.verify.support.chromium import Browser

_NAMED_ROLES = frozenset({"img", "image", "table", "searchbox", "region", "button", "link", "heading"})
_SCRIPT = r"""
(() => {
  const found = [];
  const label = e => e.tagName.toLowerCase() + (e.className.baseVal ?? e.className).replace(/^(?=.)/, ".");
  const parse = text => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return {r, g, b, a};
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a),
    g: top.g * top.a + below.g * (1 - top.a),
    b: top.b * top.a + below.b * (1 - top.a), a: 1});
  const luminance = c => [c.r, c.g, c.b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    const canvas = {r: 255, g: 255, b: 255, a: 1};
    return layers.reverse().reduce((below, top) => over(top, below), canvas);
  };
  const visible = e => e.checkVisibility() && e.getBoundingClientRect().width > 1;

  if (document.documentElement.scrollWidth > innerWidth) {
    const wide = [...document.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
    found.push(`the page is ${document.documentElement.scrollWidth} wide: ${wide.slice(0, 3).map(label)}`);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const e = node.parentElement;
    if (!node.textContent.trim() || ["SCRIPT", "STYLE", "title"].includes(e.tagName) || !visible(e)) continue;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const seen = ratio(over(parse(style.color), behind(e)), behind(e));
    if (seen < (large ? 3 : 4.5)) found.push(`contrast ${seen.toFixed(2)} of ${label(e)}: ${node.textContent}`);
    if (size < 12) found.push(`letters of ${size} px: ${node.textContent}`);
    const range = document.createRange(), box = e.closest("td, th, dd, p, li, code, h1, h2, h3, section, header");
    range.selectNodeContents(node);
    const text = range.getBoundingClientRect(), room = box.getBoundingClientRect();
    if (text.right > room.right + 1 || text.left < room.left - 1)
      found.push(`text leaves ${label(box)}: ${node.textContent}`);
  }
  for (const e of document.querySelectorAll("i, svg path, svg line, input")) {
    if (!visible(e) && e.tagName !== "line") continue;
    const style = getComputedStyle(e);
    const colour = {i: style.backgroundColor, path: style.fill, line: style.stroke, INPUT: style.borderTopColor};
    const seen = ratio(parse(colour[e.tagName] ?? style.backgroundColor), behind(e.parentElement));
    if (seen < 3) found.push(`contrast ${seen.toFixed(2)} of the shape ${label(e)}`);
  }
  let level = 0;
  for (const e of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const next = Number(e.tagName[1]);
    if (next > level + 1) found.push(`after a heading of level ${level} comes ${next}: ${e.textContent}`);
    level = next;
  }
  if (document.querySelectorAll("h1").length !== 1) found.push("there is not one h1");
  for (const e of document.querySelectorAll("th:not([scope])")) found.push(`th without scope: ${e.textContent}`);
  for (const e of document.querySelectorAll("svg:not([role]):not([aria-hidden])"))
    if (!e.parentElement.closest("svg")) found.push("svg that is neither an image nor hidden");
  for (const e of document.querySelectorAll("section, table, tbody, dl, figure, p, code, dd, td, th, caption, h2, h3"))
    if (!e.textContent.trim()) found.push(`nothing is in ${label(e)}`);
  const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
  for (const id of new Set(ids)) if (ids.filter(one => one === id).length > 1) found.push(`two ids ${id}`);
  for (const e of document.querySelectorAll("[aria-labelledby], [for]"))
    for (const id of (e.getAttribute("aria-labelledby") ?? e.htmlFor).split(" "))
      if (!document.getElementById(id)) found.push(`nothing has the id ${id}`);
  if (!document.documentElement.lang || !document.title) found.push("no language, or no title");
  return found;
})()
"""


def faults(browser: Browser) -> list[str]:
    """In the page and the view that the browser has now."""
    found: list[str] = browser.evaluate(_SCRIPT)
    told = browser.accessible()
    found += [f"a {one['role']} has no name" for one in told if one["role"] in _NAMED_ROLES and not one["name"].strip()]
    roles = Counter(one["role"] for one in told)
    for what, selector in (("table", "table"), ("columnheader", "thead th")):
        drawn = browser.evaluate(f"document.querySelectorAll('{selector}').length")
        if roles[what] != drawn:
            found.append(f"of {drawn} {selector} a screen reader finds {roles[what]}")
    return found
