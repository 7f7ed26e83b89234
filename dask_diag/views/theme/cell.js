// A picture below a cell of a notebook: as wide as it was made, or as the cell has space for.

import {fit} from "./fit_width.js"

// Milliseconds until bokeh's script must be there, and until it must have drawn the picture.
const MOST_LOADING = 5_000
const MOST_WAITING = 60_000
// Bokeh's are white, and their letters those of the notebook: white, too, in a dark one.
const WIDGETS = ".bk-input { color: #1c1e21; background-color: #ffffff; }"
const NOT_LOADED = "This page does not have Bokeh's script: it was reloaded since. "
    + "Run bokeh.io.output_notebook(), and this cell again."

// Of a picture by its id, when it is drawn; again when the cell gets another width.
export function fit_in_cell(id) {
    const started = Date.now()
    const waiting = setInterval(() => {
        const waited = Date.now() - started
        const views = Object.values(window.Bokeh?.index ?? {})
        const element = element_of(id)
        const view = views.find(({el}) => element?.contains(el))
        const is_lost = window.Bokeh === undefined && waited > MOST_LOADING
        if (view === undefined && !is_lost && waited < MOST_WAITING) return
        clearInterval(waiting)
        if (view !== undefined) follow_width(element, view)
        else if (is_lost && element !== null) element.textContent = NOT_LOADED
    }, 50)
}

// The last with this id: a notebook that was opened again may have had another.
function element_of(id) {
    return [...document.querySelectorAll(`[data-root-id="${id}"]`)].at(-1) ?? null
}

function follow_width(element, view) {
    for (const model of view.model.references())
        if ("disabled" in model.properties && "stylesheets" in model.properties)
            model.stylesheets = [...model.stylesheets, WIDGETS]
    let fitted_to = 0
    const observer = new ResizeObserver(([{target}]) => {
        if (!element.isConnected) observer.disconnect()
        // Its own height is no reason to fit it again.
        if (!element.isConnected || target.clientWidth === fitted_to) return
        fitted_to = target.clientWidth
        fit([{element, model: view.model}])
    })
    observer.observe(element.parentElement)
}
