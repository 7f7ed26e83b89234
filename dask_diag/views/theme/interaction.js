// Plots by keyboard and by finger: keys move the time axis of the plot that has the focus; on a
// phone a swipe scrolls the page, a sideways one moves the plot, and a tap shows the detail.

import {views_below} from "../plots/flame/surface.js"
import {moved} from "./keys.js"

const FARTHEST_TAP = 10             // pixels between the start and the end of a touch
const KEYS = "+ - 0 Escape ArrowLeft ArrowRight"

// Of a root, once it is drawn.
export function make_interactive(root_view) {
    for (const view of views_below(root_view)) {
        const {model} = view
        // What a screen reader says of a list to choose from, which has no title.
        if (model.type === "Select" && !model.title) view.input_el.setAttribute("aria-label", "What to show")
        const surface = view.canvas_view?.events_el
        if (model.type !== "Figure" || surface === undefined) continue
        describe(surface, model)
        listen_to_keys(surface, model)
        listen_to_touches(surface)
    }
}

// What a screen reader says of a plot that gets the focus, which is within bokeh's own elements.
function describe(surface, {title, name, left}) {
    const axis = left.find((model) => model.axis_label)
    surface.setAttribute("role", "group")
    surface.setAttribute("aria-label", title?.text || `Plot of ${axis?.axis_label ?? name ?? "data"}`)
    surface.setAttribute("aria-keyshortcuts", KEYS)
}

function listen_to_keys(surface, model) {
    surface.addEventListener("keydown", (event) => {
        const {x_range: range} = model
        // Of a recording that grows the end is not known: its page moves the range itself.
        if (!is_bounded(range) || event.ctrlKey || event.metaKey || event.altKey) return
        const view = moved(range, event.key)
        if (view === null) return
        event.preventDefault()
        range.setv(view)
    })
}

function is_bounded({bounds}) {
    return Array.isArray(bounds) && bounds.every(Number.isFinite)
}

function listen_to_touches(surface) {
    surface.style.setProperty("touch-action", "pan-y pinch-zoom", "important")
    let touched = null
    surface.addEventListener("pointerdown", (event) => {
        touched = event.pointerType === "touch" ? event : null
    })
    surface.addEventListener("pointerup", ({clientX, clientY}) => {
        if (touched === null) return
        const distance = Math.hypot(clientX - touched.clientX, clientY - touched.clientY)
        touched = null
        if (distance > FARTHEST_TAP) return
        // As a mouse would come there: tooltips follow mice, and the finger has left the plot.
        // Without a view an event does not know how far the page is scrolled.
        const place = {clientX, clientY, view: window}
        const mouse = {isPrimary: true, pointerType: "mouse", pointerId: -1}
        const move = new PointerEvent("pointermove", {...place, ...mouse})
        setTimeout(() => surface.dispatchEvent(move))
    })
}
