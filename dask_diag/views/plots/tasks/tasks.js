// Draws the tasks, when the plot is laid out: all if they are few, else those in view.
//
// tasks.py says what it is given. What is laid out as a rectangle or pixel is in the files beside.

import {count, seconds, size} from "../../formatting.js"
import {draw_when_moved, pixel_width, wrapped} from "../in_view.js"
import {unpacked} from "../binary_columns.js"
import {emptied} from "../columns.js"
import {images_of, text_of_bin} from "./binned.js"
import {indices_of_outcomes, plain_tasks, unpacked_tasks} from "./decode.js"
import {key_reader} from "./keys.js"
import {marks_of, rectangles_of, spans_in_view, tasks_in_spans} from "./rectangles.js"

const LEAST_HEIGHT = 8              // pixels of a lane's image

export function draw_all(models) {
    const {rectangles, columns, keys} = models
    if (rectangles.is_drawn) return
    rectangles.is_drawn = true
    const tasks = plain_tasks(columns)
    const spans = tasks.lanes.map(({first, last}) => [first, last])
    rectangles.data = rectangles_of(tasks, spans, -Infinity, (i) => keys[i], models)
    draw_marks(tasks, indices_of_marks(tasks, models), -Infinity, Infinity, 0, models)
    offer(models, tasks, () => (i) => keys[i])
}

// To scripts of the page that ask for single tasks; `read_keys` returns what reads their keys.
function offer({rectangles, functions, outcomes, workers, lane_height, full, details}, tasks, read_keys) {
    rectangles.in_page = {tasks, read_keys, functions, outcomes, workers, lane_height, full, details}
}

export function draw_in_view(models) {
    const {plot, status, pixels} = models
    if (pixels.is_drawn) return
    pixels.is_drawn = true
    const report_error = (error) => {
        status.text = wrapped(`The tasks cannot be drawn: ${error.message}`, plot.outer_width)
        models.rectangles.failure = error.message
    }
    plot.is_being_drawn = start(models, report_error).catch(report_error)
}

async function start(models, report_error) {
    const {plot, status, pixels, rectangles, most, packed_tasks, packed_keys, tick} = models
    const tasks = unpacked_tasks(await unpacked(packed_tasks), tick)
    const marked = indices_of_marks(tasks, models)
    const precision = precision_of(models)
    let key_of = packed_keys === null ? () => `(${without_keys(models)})` : null
    offer(models, tasks, async (longest) => packed_keys === null ? null
        : key_reader(await unpacked(packed_keys), tasks.function, longest))
    pixels.text_at = (x, y) => text_at(tasks, x, y, models)
    await draw_when_moved(plot, async () => {
        const from = plot.x_range.start / tick, to = plot.x_range.end / tick
        const spans = spans_in_view(tasks, from, to)
        const in_view = tasks_in_spans(spans)
        draw_marks(tasks, marked, from, to, pixel_width(plot) / tick, models)
        if (in_view > most) {
            rectangles.data = emptied(rectangles.data)
            const width = Math.max(1, Math.round(plot.inner_width))
            pixels.data = image_columns(tasks, spans, from, to, width, models)
            status.text = wrapped(text_of_pixels(in_view, most, precision), plot.outer_width)
            return
        }
        key_of ??= key_reader(await unpacked(packed_keys), tasks.function, models.key_size)
        pixels.data = emptied(pixels.data)
        const drawn = rectangles_of(tasks, spans, from, key_of, models)
        rectangles.data = drawn
        const text = `${count(drawn.left.length)} tasks in view, each drawn; striped: off the CPU. `
            + `In this page: ${precision}.`
        const longest = text_of_pixels(tasks.start.length, most, precision)
        status.text = wrapped(text, plot.outer_width, longest)
    }, report_error)
}

// For each kind of mark the indices of its tasks: `marked` has the codes of its outcomes.
function indices_of_marks(tasks, {marked}) {
    return marked.map((codes) => indices_of_outcomes(tasks, codes))
}

function draw_marks(tasks, marked, from, to, per_pixel, {marks, lane_height}) {
    marked.forEach((indices, kind) => {
        marks[kind].data = marks_of(tasks, indices, from, to, per_pixel, lane_height)
    })
}

// Of each lane the image of the time between two moments, in so many pixels.
export function image_columns(tasks, spans, from, to, width, models) {
    const {plot, lane_height, full} = models
    // As many rows as there are pixels: a hatch has no steps.
    const height = Math.max(LEAST_HEIGHT, Math.round(plot.inner_height * full / lane_height / spans.length))
    return {
        image: images_of(tasks, spans, from, (to - from) / width, [width, height], models),
        x: spans.map(() => from * tasks.unit),
        y: spans.map((_, lane) => lane * lane_height),
        width: spans.map(() => (to - from) * tasks.unit),
    }
}

// The tooltip of the pixel at a time and a height.
function text_at(tasks, x, y, models) {
    const {plot, tick, lane_height} = models
    const per_pixel = pixel_width(plot)
    const pixel = Math.floor((x - plot.x_range.start) / per_pixel)
    const from = (plot.x_range.start + pixel * per_pixel) / tick
    const lane = Math.floor(y / lane_height)
    return text_of_bin(tasks, lane, from, from + per_pixel / tick, models)
}

function text_of_pixels(in_view, most, precision) {
    return `${count(in_view)} tasks in view, aggregated: height is the share of time. From below: `
        + "functions, tasks off the CPU, and hatched or pale: no task. "
        + `Zoom in to fewer than ${count(most)} tasks to see each one: ${precision}.`
}

function without_keys({size_of_keys}) {
    return `${size(size_of_keys)} of keys are left out of this page`
}

function precision_of(models) {
    const tick = seconds(models.tick)
    return `times to ${tick}, CPU times to that or 0.2%`
        + (models.packed_keys === null ? `; ${without_keys(models)}` : "")
}
