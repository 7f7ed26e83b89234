// A picture below a cell of a notebook, in place of the saved one: drawn once, as wide as it was made or
// as the cell has space for, in the colors of the notebook.

import {fit} from "./fit_width.js"
import {paint, style_widgets} from "./paint.js"

// Milliseconds: until bokeh's script must be there, and until nobody waits for a cell to come into the
// page: a notebook that is opened again runs a script before.
const MOST_LOADING = 5_000
const LONGEST = 3_600_000
// Between looks: while the page is made, and later.
const OFTEN = 50
const SELDOM = 1_000
const MOST_OFTEN = 60_000
const LOADS_A_THEME = 300
const LEAST_HEIGHT = 300            // pixels
const NEAR = "100px"
const CLEAR = "rgba(0, 0, 0, 0)"
const NOT_LOADED = "This page does not have Bokeh's script: it was reloaded since. "
    + "Run bokeh.io.output_notebook(), and this cell again."

// Of a picture, as bokeh writes an item, whose element has an id: draws it when the reader comes to it,
// in place of what is there for those who run no script.
export function show_in_cell(id, item, settings) {
    wait_for(() => document.getElementById(id), LONGEST, (element) => {
        const draw_it = () => draw_when_seen(element, item, settings)
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
        else setTimeout(look_again, waited < MOST_OFTEN ? OFTEN : SELDOM)
    }
    look_again()
}

// A notebook that is opened may have many pictures, and each takes a second or more: one is drawn
// when its place is in the window.
function draw_when_seen(element, item, settings) {
    const [saved, plots] = element.closest(".dask-diag-cell").children
    const show = (is_drawn) => {
        saved.style.display = is_drawn ? "none" : ""
        plots.style.display = is_drawn ? "" : "none"
    }
    const observer = new IntersectionObserver((entries) => {
        if (!entries.some(({isIntersecting}) => isIntersecting)) return
        observer.disconnect()
        show(true)
        draw(element, item, settings).catch((error) => {
            show(false)
            say(element, `The interactive plots could not be drawn: ${error.message}`)
        })
    })
    observer.observe(saved)
}

// Colors and width are set before anything is drawn: afterwards all would be laid out again. Each part
// is a root of its own, drawn when it comes into view.
async function draw(element, {doc, root_id}, {fitted, widgets}) {
    await Bokeh.embed.embed_items({[root_id]: doc}, [])
    const bokeh = Bokeh.documents.findLast((one) => one.get_model_by_id(root_id))
    const model = bokeh.get_model_by_id(root_id)
    const models = model.references()
    style_widgets(models, widgets)
    follow_colors(element, models)
    const fit_it = () => fitted && fit([{element, model}])
    fit_it()
    bokeh.freeze_all_models(() => { bokeh.remove_root(model) })
    const places = []
    await Bokeh.embed.add_document_standalone(bokeh, document.body, places)
    const observer = new IntersectionObserver((entries) => {
        for (const {isIntersecting, target} of entries) {
            if (!isIntersecting) continue
            observer.unobserve(target)
            places.push(target)
            bokeh.add_root(parts.get(target))
        }
    }, {rootMargin: NEAR})
    const parts = new Map(parts_of(model, model).map((part) => [place_of(part, element), part]))
    for (const place of parts.keys()) observer.observe(place)
    follow_width(element, fit_it)
}

// Plots over one time axis, and each panel below them.
function parts_of({type, children}, model) {
    const has_plots = type === "Column" && children.some((child) => child.type === "GridPlot")
    return has_plots ? children : [model]
}

// Where a part will be: it is as high as some, so that the next one is not in view before.
function place_of({height}, element) {
    const place = document.createElement("div")
    place.style.minHeight = `${height ?? LEAST_HEIGHT}px`
    element.append(place)
    return place
}

function say(element, text) {
    const line = document.createElement("p")
    line.textContent = text
    element.closest(".dask-diag-cell").prepend(line)
}

function follow_width(element, fit_it) {
    let fitted_to = element.parentElement.clientWidth
    const observer = new ResizeObserver(([{target}]) => {
        if (!element.isConnected) observer.disconnect()
        // Its own height is no reason to fit it again, and a cell out of view has no width.
        if (!element.isConnected || [0, fitted_to].includes(target.clientWidth)) return
        fitted_to = target.clientWidth
        fit_it()
    })
    observer.observe(element.parentElement)
}

// Notebooks name their colors in different ways, and say in different ways that others hold.
function follow_colors(element, models) {
    let painted = ""
    const look = () => {
        const {color} = getComputedStyle(element)
        if (color === painted) return
        painted = color
        set_colors(element, color)
        paint(models, element)
    }
    look()
    const observer = new MutationObserver(() => {
        if (element.isConnected) setTimeout(look, LOADS_A_THEME)
        else observer.disconnect()
    })
    for (const place of [document.documentElement, document.body])
        observer.observe(place, {attributes: true})
}

function set_colors(element, color) {
    const [red, green, blue] = color.match(/[\d.]+/g)
    const [muted, line] = [0.75, 0.2].map((opacity) => `rgba(${red}, ${green}, ${blue}, ${opacity})`)
    const paper = paper_below(element)
    const colors = {foreground: color, background: paper, box: paper, muted, line, "bokeh-icon-color": muted}
    for (const [name, value] of Object.entries(colors)) element.style.setProperty(`--${name}`, value)
}

function paper_below(element) {
    for (let place = element; place !== null; place = place.parentElement) {
        const {backgroundColor} = getComputedStyle(place)
        if (backgroundColor !== CLEAR) return backgroundColor
    }
    // VS Code names the color that it has behind a notebook.
    return getComputedStyle(element).getPropertyValue("--vscode-editor-background") || "white"
}
