"""The documentation, opened from disk as a reader would: search works, formulas have a size, nothing is fetched."""

from __future__ import annotations

import pytest


@pytest.mark.slow
def test_search_works_without_a_server(site, tab):
    page = tab((site / "index.html").as_uri()).page
    page.click(".md-search__input")
    page.keyboard.type("inverse slack")
    page.wait_for_function("document.querySelector('.md-search-result__meta').textContent.includes('matching')")
    first = page.locator(".md-search-result__link").first
    assert first.get_attribute("href").startswith((site / "").as_uri())


def test_formulas_are_drawn(site, tab):
    page = tab((site / "explanation" / "method.html").as_uri()).page
    heights = page.evaluate("[...document.querySelectorAll('.formula math')].map(m => m.clientHeight)")
    assert len(heights) >= 5
    assert min(heights) > 15


def test_formulas_beside_each_other_stand_below_each_other_on_a_phone(site, tab):
    page = tab((site / "explanation" / "method.html").as_uri(), viewport={"width": 390, "height": 844}).page
    wide = page.evaluate("[...document.querySelectorAll('.formula')].map(f => f.scrollWidth - f.clientWidth)")
    assert len(wide) >= 5
    assert max(wide) <= 0


def test_aligned_formulas_have_rows_and_no_ampersands(site, tab):
    page = tab((site / "reference" / "api-theory.html").as_uri()).page
    assert page.locator(".formula mtr").count() >= 3
    assert not [text for text in page.locator("math").all_text_contents() if "&" in text]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_of_the_architecture_is_legible(site, tab, scheme):
    """Its words stand out from their boxes in both colour schemes, and stay inside them."""
    page = tab((site / "explanation" / "architecture.html").as_uri(), color_scheme=scheme).page
    colours = page.evaluate(
        """() => ["rect.box", "text.word"].map(each => {
             const fill = getComputedStyle(document.querySelector(".diagram " + each)).fill;
             const [r, g, b] = fill.match(/[\\d.]+/g).map(Number);
             return fill.includes("srgb") ? 255 * (r + g + b) / 3 : (r + g + b) / 3;
           })"""
    )
    assert abs(colours[0] - colours[1]) > 90
    outside = page.evaluate(
        """() => {
             const box = document.querySelector(".diagram svg").getBoundingClientRect();
             return [...document.querySelectorAll(".diagram text")].filter(text => {
               const t = text.getBoundingClientRect();
               return t.left < box.left || t.right > box.right;
             }).map(text => text.textContent);
           }"""
    )
    assert outside == []


CUT = """() => {
  const wide = (each) => each.scrollWidth - each.clientWidth > 1;
  const code = [...document.querySelectorAll(".md-typeset pre > code")].filter(wide);
  const tables = [...document.querySelectorAll(".md-typeset__scrollwrap")].filter(wide);
  const body = document.documentElement.scrollWidth > window.innerWidth ? ["the page itself"] : [];
  return [...[...code, ...tables].map((each) => each.textContent.trim().slice(0, 60)), ...body];
}"""
LINE_AT_1400 = """() => {
  const code = document.querySelector(".md-typeset pre > code");
  const ruler = code.appendChild(document.createElement("span"));
  ruler.textContent = "x".repeat(100);
  const style = getComputedStyle(code);
  const room = code.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return 100 * room / ruler.getBoundingClientRect().width;
}"""


@pytest.mark.slow
def test_no_code_and_no_table_is_cut_on_a_desk_and_on_a_phone(site, tab):
    page = tab((site / "tutorial.html").as_uri(), viewport={"width": 1400, "height": 900}).page
    assert page.evaluate(LINE_AT_1400) >= 110  # characters: lines of code wrap rarely
    cut = []
    pages = [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]  # which needs a server
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for path in pages:  # loaded at this width: after a change of width the search moves into the page for a while
            page.goto(path.as_uri())
            cut += [f"{path.relative_to(site)} at {width} px: {text}" for text in page.evaluate(CUT)]
    assert cut == []
