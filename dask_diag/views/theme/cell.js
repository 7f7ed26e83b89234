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

// Of a picture by its id: draws it when the reader comes to it, in place of what is there for those
// who run no script; `is_fitted`, as wide as the cell, again when that gets another width.
export function show_in_cell(id, is_fitted, draw) {
    wait_for(() => element_of(id), LONGEST, (element) => {
        const draw_it = () => draw_when_seen(element, is_fitted, draw)
        wait_for(() => window.Bokeh, MOST_LOADING, draw_it, () => say(element, NOT_LOADED))
    })
}

// Calls `then` with what `look` finds, as soon as there is something.
function wait_for(look, most, then, otherwise = () => {}) {
    const started = Date.now()
    function look_again() {
        const found = look()
        const waited = Date.now() - started
        if (found) then(found)
        else if (waited > most) otherwise()
        else setTimeout(look_again, waited < MOST_WAITING ? OFTEN : SELDOM)
    }
    look_again()
}

// A notebook that is opened may have many pictures, and each takes a second or more: one is drawn
// when its place is in the window.
function draw_when_seen(element, is_fitted, draw) {
    const [saved, plots] = element.closest(".dask-diag-cell").children
    function show(is_drawn) {
        saved.style.display = is_drawn ? "none" : ""
        plots.style.display = is_drawn ? "" : "none"
    }
    function show_plots() {
        show(true)
        draw()
        const follow = (view) => is_fitted && follow_width(element, view)
        wait_for(() => view_in(element), MOST_WAITING, follow, () => show(false))
    }
    const observer = new IntersectionObserver((entries) => {
        if (!entries.some(({isIntersecting}) => isIntersecting)) return
        observer.disconnect()
        show_plots()
    })
    observer.observe(saved)
}

function view_in(element) {
    return Object.values(window.Bokeh.index).find(({el}) => element.contains(el))
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
