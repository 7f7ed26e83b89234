"""Whether a figure is painted while its columns are half replaced.

Bokeh takes over the columns of a source in several steps, and a text that is set meanwhile lays out
the page and paints at once: with colours of the new rows for the old ones.
"""

from __future__ import annotations

from .opened_pages import settled

_OBSERVE = """() => {
    const views = new Set()
    const walk = (view) => {
        if (view == null || views.has(view)) return
        views.add(view)
        for (const child of view.children_views()) walk(child)
    }
    for (const view of Object.values(Bokeh.index)) walk(view)
    const {prototype} = [...views].find(({model}) => model.type === "GlyphRenderer").constructor
    const {set_data, _paint} = prototype
    const pending = new Map()
    const add = (view, by) => pending.set(view, (pending.get(view) ?? 0) + by)
    window.replaced = 0
    window.painted_half = []
    prototype.set_data = async function (...args) {
        window.replaced++
        add(this, 1)
        try { return await set_data.apply(this, args) } finally { add(this, -1) }
    }
    prototype._paint = function (...args) {
        if (pending.get(this) > 0) window.painted_half.push(this.model.glyph.type)
        return _paint.apply(this, args)
    }
}"""


def observe_paints(page):
    """Count from now on."""
    page.evaluate(_OBSERVE)


def paints_of_half(page):
    """The glyphs that were painted while their columns were replaced; some were replaced."""
    settled(page, 200)
    assert page.evaluate("window.replaced") > 0
    return page.evaluate("window.painted_half")
