// Lines of many points in a page: draws those in view, of each pixel first, last and extremes.
//
// So a line covers the same pixels as one through all of its points, and the points that the mouse
// finds were measured. It runs once, when the plot is laid out; lines.py says what it is given.

import {count} from "../formatting.js"
import {draw_when_moved, first_above, pixel_width, wrapped} from "./in_view.js"
import {unpacked} from "./binary_columns.js"

export function draw_lines(models) {
    const {plot, status, points} = models
    if (status.is_started) return
    status.is_started = true
    const report_error = (error) => {
        status.text = wrapped(`The ${points} cannot be drawn: ${error.message}`, plot.outer_width)
    }
    plot.is_being_drawn = start(models, report_error).catch(report_error)
}

async function start({plot, status, lines, points, most, precision}, report_error) {
    const unpacked_lines = await Promise.all(lines.map(async (line) =>
        ({...line, columns: sums_of_steps(await unpacked(line.packed), line.units)})))
    const total = unpacked_lines.reduce((sum, {columns}) => sum + columns.time.length, 0)
    const text_of = (in_view) => {
        const how = in_view <= most ? "each drawn."
            : "of each pixel the first, the last and the extremes are drawn. Zoom in to see all, "
                + `from ${count(most)} on.`
        return `${count(in_view)} ${points} in view, ${how} In this page: ${precision}.`
    }
    await draw_when_moved(plot, () => {
        const {start: from, end: to} = plot.x_range
        const spans = unpacked_lines.map(({columns}) => indices_in_view(columns.time, from, to))
        const in_view = spans.reduce((sum, [first, last]) => sum + last - first, 0)
        unpacked_lines.forEach(({source, columns, drawn}, n) => {
            const indices = in_view <= most ? all_of(spans[n])
                : extremes(columns, drawn, spans[n], from, pixel_width(plot))
            source.data = Object.fromEntries(Object.entries(columns).map(
                ([name, values]) => [name, indices.map((i) => values[i])]))
        })
        status.text = wrapped(text_of(in_view), plot.outer_width, text_of(total))
    }, report_error)
}

// Columns that travelled as whole numbers, as steps from row to row.
export function sums_of_steps(columns, units) {
    return Object.fromEntries(Object.keys(units).map((name) => {
        const steps = columns[name], values = new Float64Array(steps.length)
        for (let i = 0, sum = 0; i < steps.length; i++) values[i] = (sum += steps[i]) * units[name]
        for (const i of columns[`unknown ${name}`]) values[i] = NaN
        return [name, values]
    }))
}

// From the last point before what is in view to the first one after it.
function indices_in_view(time, from, to) {
    const first = first_above(time, from, 0, time.length)
    const last = first_above(time, to, first, time.length)
    return [Math.max(0, first - 1), Math.min(time.length, last + 1)]
}

function all_of([first, last]) {
    return Array.from({length: last - first}, (_, n) => first + n)
}

// Of each pixel the indices of its first and last row, and of the extremes of each drawn column.
export function extremes(columns, drawn, [first, last], from, per_pixel) {
    const indices = [], lowest = drawn.map(() => first), highest = drawn.map(() => first)
    let pixel = null, first_of_pixel = first
    const finish_pixel = (end) => {
        const chosen = new Set([first_of_pixel, ...lowest, ...highest, end])
        indices.push(...[...chosen].sort((a, b) => a - b))
    }
    for (let i = first; i < last; i++) {
        const pixel_of_row = Math.floor((columns.time[i] - from) / per_pixel)
        if (pixel_of_row !== pixel) {
            if (pixel !== null) finish_pixel(i - 1)
            pixel = pixel_of_row
            first_of_pixel = i
            lowest.fill(i)
            highest.fill(i)
            continue
        }
        for (let n = 0; n < drawn.length; n++) {
            const values = columns[drawn[n]]
            if (values[i] < values[lowest[n]] || isNaN(values[lowest[n]])) lowest[n] = i
            if (values[i] > values[highest[n]] || isNaN(values[highest[n]])) highest[n] = i
        }
    }
    if (pixel !== null) finish_pixel(last - 1)
    return indices
}
