// Figures as wide as they were made, or as the page has space for: on a phone, less.

import {wrapped} from "../plots/in_view.js"

const NARROW = 600                  // pixels: where there are less, a figure's legend is below it
const MOST_FOR_NAMES = 130          // pixels that the names of bars then have
const NARROW_BORDER = 12
const BORDER_OF_NUMBERS = 48
const HEIGHT_OF_AN_AXIS = 22
const ON_A_PHONE = "on a phone"     // the tag of an axis that is hidden elsewhere
const SMALL_LETTERS = "10px"
const LINE_OF_A_TITLE = 13
const LINE_OF_A_LEGEND = 16
const MARGIN_OF_A_LEGEND = 8

const FLUID = "fluid"               // the tag of a grid whose figures take all that there is

const original = new Map()          // of each model the attributes that it was made with
const wrapped_rows = new Set()

export function fit(roots) {
    for (const {element, model: root} of roots) {
        const available = Math.floor(element.parentElement.clientWidth)
        const models = root.references()
        const grids = [...models].filter((model) => model.type === "GridPlot" && model.tags.includes(FLUID))
        const fluid = new Set(grids.flatMap(({children}) => children.map(([figure]) => figure)))
        for (const model of models)
            if (available > 0 && "sizing_mode" in model.properties && model.sizing_mode === null)
                fit_model(model, available, fluid.has(model) ? Infinity : undefined)
        for (const model of models) if (model.type === "Row") wrap(model, available)
        for (const model of models)
            if (available > 0 && model.type === "Figure" && model.sizing_mode !== null)
                fit_borders(model, available)
    }
}

// Remembers what a model was made with, the first time that it is asked for.
function original_of(model) {
    if (!original.has(model)) original.set(model, {...model.attributes})
    return original.get(model)
}

function fit_model(model, available, widest = original_of(model).width) {
    const margins = typeof model.margin === "number" ? 2 * model.margin : 0
    if (typeof original_of(model).width === "number") model.width = Math.min(widest, available - margins)
    if (model.type === "Figure") fit_figure(model, available)
}

// A figure that is as wide as the page anyway: on a phone its borders are for the numbers alone, its
// tools are above it, and it has the axis of time that the figures below it have elsewhere.
function fit_borders(figure, available) {
    const is_narrow = available < NARROW
    const {min_border_left: left, min_border_right: right} = original_of(figure)
    if (typeof left === "number")
        figure.min_border_left = is_narrow ? Math.min(left, BORDER_OF_NUMBERS) : left
    if (typeof right === "number")
        figure.min_border_right = is_narrow ? Math.min(right, NARROW_BORDER) : right
    const {toolbar_location} = original_of(figure)
    figure.toolbar_location = is_narrow && toolbar_location === "right" ? "above" : toolbar_location
    for (const axis of figure.below) {
        if (!axis.tags?.includes(ON_A_PHONE)) continue
        axis.visible = is_narrow
        figure.height = original_of(figure).height + (is_narrow ? HEIGHT_OF_AN_AXIS : 0)
    }
    for (const axis of figure.left) {
        if (!("axis_label" in axis.properties)) continue
        axis.axis_label_standoff = is_narrow ? 0 : original_of(axis).axis_label_standoff
    }
}

// What does not fit beside each other goes below; a figure that stands alone needs its own axis.
function wrap(row, available) {
    const widths = row.children.map((child) => (original.get(child) ?? child).width ?? 0)
    const wraps = widths.reduce((sum, width) => sum + width, 0) > available
    if (wraps !== wrapped_rows.has(row)) {
        row.styles = wraps ? {"flex-wrap": "wrap"} : {}
        if (wraps) wrapped_rows.add(row)
        else wrapped_rows.delete(row)
    }
    for (const child of row.children) {
        if (child.type !== "Figure" || child.sizing_mode !== null) continue
        if (wraps) child.width = available
        for (const axis of child.left) axis.visible = original_of(axis).visible || wraps
    }
}

function fit_figure(figure, available) {
    const is_narrow = available < NARROW
    for (const model of [figure.title, ...figure.left, ...figure.center]) {
        for (const property of ["major_label_text_font_size", "text_font_size"]) {
            if (!(property in (model?.properties ?? {}))) continue
            const size = original_of(model)[property]
            model[property] = is_narrow ? SMALL_LETTERS : size
        }
    }
    const more_lines = wrap_title(figure.title, available, is_narrow)
    // Beside a title there would be no space for its tools.
    figure.toolbar_sticky = !is_narrow && original_of(figure).toolbar_sticky
    const names = original_of(figure).min_border_left
    if (typeof names === "number")
        figure.min_border_left = is_narrow ? Math.min(names, MOST_FOR_NAMES) : names
    const {min_border_right: right} = original_of(figure)
    if (typeof right === "number")
        figure.min_border_right = is_narrow ? Math.min(right, NARROW_BORDER) : right
    fit_height(figure, is_narrow, more_lines * LINE_OF_A_TITLE + show_legend(figure, is_narrow))
}

// A title is in as many lines as it takes; returns how many are more than it was made with.
function wrap_title(title, available, is_narrow) {
    const text = title === null ? "" : original_of(title).text
    if (typeof text !== "string" || text === "") return 0
    title.text = is_narrow ? wrapped(text, available) : text
    return title.text.split("\n").length - text.split("\n").length
}

function fit_height(figure, is_narrow, more) {
    const {height} = original_of(figure)
    if (typeof height === "number") figure.height = height + (is_narrow ? more : 0)
}

// A figure has its legend twice: the hidden one is for below it, where the page is narrow. Returns the
// pixels that it then takes.
function show_legend(figure, is_narrow) {
    const beside = figure.right.find((model) => model.type === "Legend")
    const below = figure.below.find((model) => model.type === "Legend")
    if (!beside || !below || !(beside.visible || below.visible)) return 0
    beside.visible = !is_narrow
    below.visible = is_narrow
    return LINE_OF_A_LEGEND * below.items.length + MARGIN_OF_A_LEGEND
}
