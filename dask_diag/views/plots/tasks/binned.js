// Many tasks: an image of each lane. A pixel's column shows what its worker did in that time: from
// below the functions that computed, then tasks that were off the CPU; what is free is empty.

import {count, percent} from "../../formatting.js"
import {cpu_share} from "./decode.js"
import {spans_in_view} from "./rectangles.js"

const ROWS = 16                     // of a lane's image: so many steps of the worker's time
const NOT_CPU = 0.35                // how strong the colour is of a task that is off the CPU
const MOST_NAMES = 4

// Of each lane its image from a time on, and of how many tasks' functions there are colours.
export function images_of(tasks, spans, from, per_pixel, width, colors) {
    const pixel_colors = colors.map(blue_green_red)
    const bins = {
        cpu: new Float64Array(width * colors.length), busy: new Float64Array(width * colors.length),
    }
    return spans.map((span) => {
        fill_bins(bins, tasks, span, from, per_pixel, width)
        return image_of(bins, width, pixel_colors)
    })
}

// As a number whose lowest byte is red, as images have it.
function blue_green_red(color) {
    const channels = parseInt(color.slice(1, 7), 16)
    return (channels >> 16) | (channels & 0xff00) | (channels & 0xff) << 16
}

// For each pixel and function the share of the time that the worker had such a task, and computed.
function fill_bins({cpu, busy}, tasks, [start, end], from, per_pixel, width) {
    const functions = busy.length / width
    cpu.fill(0)
    busy.fill(0)
    for (let i = start; i < end; i++) {
        const left = (tasks.start[i] - from) / per_pixel, right = (tasks.stop[i] - from) / per_pixel
        if (right < 0) continue
        const code = tasks.function[i], share = cpu_share(tasks, i)
        const first = Math.max(0, Math.floor(left)), last = Math.min(width - 1, Math.floor(right))
        for (let pixel = first; pixel <= last; pixel++) {
            // Nobody would see a task without length.
            const part = Math.max(Math.min(right, pixel + 1) - Math.max(left, pixel), Number.EPSILON)
            busy[pixel * functions + code] += part
            cpu[pixel * functions + code] += part * share
        }
    }
}

// Heights are shares of the pixel's time. What was there for less than a row is the lowest one.
function image_of({cpu, busy}, width, pixel_colors) {
    const functions = pixel_colors.length
    const image = new Uint32Array(ROWS * width)
    for (let pixel = 0; pixel < width; pixel++) {
        const first = pixel * functions
        let reached = 0, filled = 0, longest = -1
        const stack = (code, part, strength) => {
            reached += part
            const color = (pixel_colors[code] | Math.round(255 * strength) << 24) >>> 0
            for (const top = Math.min(ROWS, Math.round(ROWS * reached)); filled < top; filled++)
                image[(ROWS - 1 - filled) * width + pixel] = color
        }
        for (let code = 0; code < functions; code++) {
            if (cpu[first + code] > 0) stack(code, cpu[first + code], 1)
            if (busy[first + code] > (busy[first + longest] ?? 0)) longest = code
        }
        for (let code = 0; code < functions; code++) {
            const off_cpu = busy[first + code] - cpu[first + code]
            if (off_cpu > 0) stack(code, off_cpu, NOT_CPU)
        }
        if (filled === 0 && longest >= 0) stack(longest, 1 / ROWS, 1)
    }
    return Object.assign(image, {shape: [ROWS, width], dimension: 2})
}

// How many tasks ran in a lane between two times, and the functions' shares of that time.
export function text_of_bin(tasks, lane, from, to, functions) {
    const bounds = tasks.lanes[lane]
    if (bounds === undefined) return ""
    const [[first, last]] = spans_in_view({...tasks, lanes: [bounds]}, from, to)
    const times = new Map()
    let in_bin = 0
    for (let i = first; i < last; i++) {
        if (tasks.stop[i] < from) continue
        in_bin++
        const time = Math.min(to, tasks.stop[i]) - Math.max(from, tasks.start[i])
        times.set(tasks.function[i], (times.get(tasks.function[i]) ?? 0) + time)
    }
    const longest_first = [...times].sort((a, b) => b[1] - a[1])
    const shares = longest_first.slice(0, MOST_NAMES)
        .map(([code, time]) => `${functions[code]} ${percent(time / (to - from))}`)
    const busy = longest_first.reduce((sum, [, time]) => sum + time, 0) / (to - from)
    const more = times.size > MOST_NAMES ? `, ${count(times.size - MOST_NAMES)} more functions` : ""
    return `${count(in_bin)} tasks: ${shares.join(", ")}${more} of the time, ${percent(busy)} in all`
}
