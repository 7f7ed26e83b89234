// Figures as wide as they were made, or as there is room: on a phone, less.
const NARROW = 600                  // pixels: where a figure has less, its legend is below it
const MOST_FOR_NAMES = 130          // and the names of bars have this
const SMALL_LETTERS = "10px"
const LINE_OF_A_LEGEND = 16
const made = new Map()              // of each figure, widget and layout, the sizes it was made with
const wrapped = new Set()

function fit(all) {
    for (const element of document.querySelectorAll(".figure [data-root-id]")) {
        const room = Math.floor(element.parentElement.clientWidth)
        const inside = Bokeh.documents[0].get_model_by_id(element.dataset.rootId).references()
        for (const model of inside)
            if (room > 0 && "sizing_mode" in model.properties && model.sizing_mode == null)
                fit_into(room, model)
        for (const model of inside) if (model.type == "Row") wrap(model, room)
    }
}

function fit_into(room, model) {
    if (!made.has(model)) made.set(model, {...model.attributes})
    const {width} = made.get(model)
    const around = typeof model.margin == "number" ? 2 * model.margin : 0
    if (width != null) model.width = Math.min(width, room - around)
    if (model.type == "Figure") fit_figure(model, room)
}

// What does not fit beside each other goes below; a figure that stands alone needs its own axis.
function wrap(row, room) {
    const widths = row.children.map((child) => (made.get(child) ?? child).width ?? 0)
    const wraps = widths.reduce((sum, width) => sum + width, 0) > room
    if (wraps != wrapped.has(row)) {
        row.styles = wraps ? {"flex-wrap": "wrap"} : {}
        wraps ? wrapped.add(row) : wrapped.delete(row)
    }
    for (const child of row.children) {
        if (child.type != "Figure" || child.sizing_mode != null) continue
        if (wraps) child.width = room
        for (const axis of child.left) {
            if (!made.has(axis)) made.set(axis, {...axis.attributes})
            axis.visible = wraps || made.get(axis).visible
        }
    }
}

function fit_figure(figure, room) {
    for (const model of [figure.title, ...figure.left, ...figure.center]) {
        for (const name of ["major_label_text_font_size", "text_font_size"]) {
            if (!(name in (model?.properties ?? {}))) continue
            if (!made.has(model)) made.set(model, {...model.attributes})
            model[name] = room < NARROW ? SMALL_LETTERS : made.get(model)[name]
        }
    }
    // Beside a title its tools would have no room.
    figure.toolbar_sticky = room >= NARROW && made.get(figure).toolbar_sticky
    const names = made.get(figure).min_border_left
    if (names != null) figure.min_border_left = room < NARROW ? Math.min(names, MOST_FOR_NAMES) : names
    place_legend(figure, room)
}

// A figure has its legend twice: the one that is hidden is for below it, where there is little room.
function place_legend(figure, room) {
    const beside = figure.right.find((model) => model.type == "Legend")
    const below = figure.below.find((model) => model.type == "Legend")
    if (beside == null || below == null || !(beside.visible || below.visible)) return
    const narrow = room < NARROW
    beside.visible = !narrow
    below.visible = narrow
    const {height} = made.get(figure)
    figure.height = height + (narrow ? LINE_OF_A_LEGEND * below.items.length + 8 : 0)
}
