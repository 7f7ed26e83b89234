// A picture below a cell of a notebook: in place of the saved one, as wide as it was made or as the
// cell has space for.

import {fit} from "./fit_width.js"

// Milliseconds: until bokeh's script must be there, until it must have drawn the picture, and until
// nobody waits for a cell to come into the page: a notebook that is opened again runs a script before.
const MOST_LOADING = 5_000
const MOST_WAITING = 60_000
const LONGEST = 3_600_000
// Between looks: while the page is made, and later.
const OFTEN = 50
const SELDOM = 1_000
// Bokeh's are white, and their letters those of the notebook: white, too, in a dark one.
const WIDGETS = ".bk-input { color: #1c1e21; background-color: #ffffff; }"
const NOT_LOADED = "This page does not have Bokeh's script: it was reloaded since. "
    + "Run bokeh.io.output_notebook(), and this cell again."

// Of a picture by its id: draws it once its element is in the page, in place of what is there for
// those who run no script; `is_fitted`, as wide as the cell, again when that gets another width.
export function show_in_cell(id, is_fitted, draw) {
    const started = Date.now()
    let found = null
    let is_asked = false
    function look() {
        const element = element_of(id)
        if (element === null) {
            const waited = Date.now() - started
            if (waited < LONGEST) setTimeout(look, waited < MOST_WAITING ? OFTEN : SELDOM)
            return
        }
        found ??= Date.now()
        const waited = Date.now() - found
        const is_loaded = window.Bokeh !== undefined
        const view = Object.values(window.Bokeh?.index ?? {}).find(({el}) => element.contains(el))
        if (view !== undefined) {
            if (is_fitted) follow_width(element, view)
        } else if (!is_loaded && waited > MOST_LOADING) say(element, NOT_LOADED)
        else if (waited > MOST_WAITING) show(element, false)
        else {
            if (is_loaded && !is_asked) {
                is_asked = true
                show(element, true)
                draw()
            }
            setTimeout(look, OFTEN)
        }
    }
    look()
}

// Shows the plots, or what a reader without scripts sees.
function show(element, is_drawn) {
    const [saved, plots] = element.closest(".dask-diag-cell").children
    saved.hidden = is_drawn
    plots.hidden = !is_drawn
}

function say(element, text) {
    const line = document.createElement("p")
    line.textContent = text
    element.closest(".dask-diag-cell").prepend(line)
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
