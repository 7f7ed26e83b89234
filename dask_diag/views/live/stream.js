// Tasks in lanes: rectangles of each, or of each lane an image of what was in its pixels.

import {percent, seconds} from "../formatting.js"
import {blue_green_red} from "../image_colors.js"

const GAP = 0.08                    // of a lane, above and below its tasks
const SHOWN = ["left", "right", "bottom", "top", "color", "function", "lasted", "share"]
const STRIPED = ["left", "right", "filled", "top"]

// What sources of rectangles hold: tasks that are done, their striped parts, and tasks that run. Stripes
// take a browser longer than all else: none are drawn where less than half of a pixel would be striped.
export function rectangles(stream, from, lanes, pixels_of_a_lane) {
    const tasks = columns_of(SHOWN), running = columns_of(SHOWN), stripes = columns_of(STRIPED)
    for (let i = 0; i < stream.left.length; i++) {
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
        if (share >= 0 && (100 - share) / 100 * full * pixels_of_a_lane >= 0.5) {
            stripes.left.push(left)
            stripes.right.push(left + lasted)
            stripes.filled.push(bottom + full * share / 100)
            stripes.top.push(bottom + full)
        }
        column.color.push(color)
        column.function.push(name)
        column.lasted.push(share < 0 ? `${seconds(lasted)} so far` : seconds(lasted))
        column.share.push(share < 0 ? "not known yet" : percent(share / 100))
    }
    return {tasks, running, stripes}
}

function columns_of(names) {
    return Object.fromEntries(names.map((name) => [name, []]))
}

// What the source of images holds: a code is there so often, pixel by pixel and each from below.
export function images(stream, view, lanes) {
    const columns = {image: [], x: [], y: [], dw: [], dh: []}
    if (!stream.codes) return columns
    const colors = colors_of(stream)
    const codes = bytes_of(stream.codes), repeats = new Uint16Array(bytes_of(stream.repeats).buffer)
    const shape = [stream.rows, stream.columns]
    let run = 0
    stream.lanes.forEach((_, lane) => {
        const image = new Uint32Array(stream.rows * stream.columns)
        for (let end = 0, cell = 0; cell < image.length; run++) {
            const color = colors[codes[run]]
            for (end += repeats[run]; cell < end; cell++)
                image[cell % stream.rows * stream.columns + Math.floor(cell / stream.rows)] = color
        }
        columns.image.push(Object.assign(image, {shape, dimension: 2}))
        columns.x.push(view[0])
        columns.y.push(lanes - 1 - lane + GAP)
        columns.dw.push(view[1] - view[0])
        columns.dh.push(1 - 2 * GAP)
    })
    return columns
}

// By code; where nothing was, a pixel is clear.
function colors_of({functions, off_cpu}) {
    const colors = new Uint32Array(256)
    const all = [...functions.map(([, color], code) => [code, color]), off_cpu]
    for (const [code, color] of all) colors[code] = (blue_green_red(color) | 0xff << 24) >>> 0
    return colors
}

function bytes_of(text) {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))
}
