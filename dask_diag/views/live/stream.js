// Tasks in lanes: rectangles of each, or an image of what was in each pixel.

import {percent, seconds} from "../formatting.js"

const GAP = 0.08                    // of a lane, above and below its tasks
const ROWS = 12                     // of a lane in the image
const MARGIN = 1                    // rows of it that stay empty, above and below
const NOTHING = 255

// What sources of rectangles hold: tasks that are done, and those that run.
export function rectangles(stream, from, lanes) {
    const tasks = no_rectangles(), running = no_rectangles()
    for (let i = 0; i < (stream.left ?? []).length; i++) {
        const [name, color] = stream.functions[stream.function[i]]
        const share = stream.share[i]
        const column = share < 0 ? running : tasks
        const bottom = lanes - 1 - stream.lane[i] + GAP, full = 1 - 2 * GAP
        const left = from + stream.left[i] * stream.unit
        const lasted = stream.length[i] * stream.unit
        column.left.push(left)
        column.right.push(left + lasted)
        column.bottom.push(bottom)
        column.top.push(bottom + full)
        // Above this height a task is striped.
        column.filled.push(bottom + full * Math.max(0, share) / 100)
        column.color.push(color)
        column.function.push(name)
        column.lasted.push(share < 0 ? `${seconds(lasted)} so far` : seconds(lasted))
        column.share.push(share < 0 ? "not known yet" : percent(share / 100))
    }
    return {tasks, running}
}

function no_rectangles() {
    const names = ["left", "right", "bottom", "top", "filled", "color", "function", "lasted", "share"]
    return Object.fromEntries(names.map((name) => [name, []]))
}

// What the source of the image holds: a lane is as high in a pixel as it was busy there.
export function cells_image(stream, from, lanes) {
    if (!stream.cells) return {image: [], x: [], y: [], dw: [], dh: []}
    const cells = bytes_of(stream.cells), busy = bytes_of(stream.busy), width = stream.columns
    const colors = stream.functions.map(([, color]) => blue_green_red(color))
    const image = new Uint32Array(lanes * ROWS * width)
    for (let lane = 0; lane < stream.lanes.length; lane++) {
        const lowest = (lanes - 1 - lane) * ROWS + MARGIN
        for (let pixel = 0; pixel < width; pixel++) {
            const cell = cells[lane * width + pixel]
            if (cell === NOTHING) continue
            const rows = Math.max(1, Math.round(busy[lane * width + pixel] / 255 * (ROWS - 2 * MARGIN)))
            for (let row = 0; row < rows; row++)
                image[(lowest + row) * width + pixel] = (colors[cell] | 0xff << 24) >>> 0
        }
    }
    Object.assign(image, {shape: [lanes * ROWS, width], dimension: 2})
    return {image: [image], x: [from], y: [0], dw: [width * stream.unit], dh: [lanes]}
}

function bytes_of(text) {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))
}

// As a number whose lowest byte is red, as images have it.
function blue_green_red(color) {
    const channels = parseInt(color.slice(1, 7), 16)
    return (channels >> 16) | (channels & 0xff00) | (channels & 0xff) << 16
}
