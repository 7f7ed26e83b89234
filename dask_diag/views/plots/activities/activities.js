// Draws the pictures of activities, as the page opens and when the reader chooses otherwise.

import {count} from "../../formatting.js"
import {lay_out} from "./bars.js"

export function draw({numbers, function_list, unit_select, pictures, heading, legend, texts}) {
    const unit = Number(unit_select.value)
    const chosen = function_list.active
    const layout = lay_out(numbers, chosen, unit)
    for (const name of ["by_function", "by_activity", "by_worker"])
        pictures[name].plot.below[0].axis_label = numbers.units[unit]
    const {functions} = numbers
    heading.text = chosen.length === functions.length ? texts.heading
        : `${texts.heading}: tasks of ${count(chosen.length)} of ${count(functions.length)} functions`
    const drawn = new Set(layout.by_activity.pieces.activity)
    legend.text = texts.legend_items.filter((_, activity) => drawn.has(activity)).join("")
        || texts.nothing
    for (const [name, picture] of Object.entries(pictures)) resize(picture, layout[name])
    // Last: a text or a height paints at once, also what bokeh has taken over only half.
    for (const [name, picture] of Object.entries(pictures)) show(picture, layout[name])
}

function resize({plot, space_for_text, height_of_row, height_around}, {rows}) {
    const height = Math.max(rows.y.length, 1)
    plot.y_range.setv({start: height - 0.4, end: -0.6})
    plot.height = height_around + height_of_row * height
    if (rows.right) {
        const longest = Math.max(0, ...rows.right)
        const least = Math.min(0, ...rows.left)
        const end = longest + (longest - least) * space_for_text || 1
        plot.x_range.setv({start: least, end})
    }
}

function show({plot, pieces: piece_source, rows: row_source}, {pieces, rows}) {
    piece_source.data = pieces
    row_source.data = rows
    const [axis] = plot.left
    axis.ticker.ticks = rows.y
    // The labels are read from the rows when the axis is laid out.
    axis.change.emit()
}
