// Many tasks: an image of each lane. A pixel's column shows what its worker did in that time: from
// below the functions that computed, then tasks that were off the CPU, then what kept the worker from
// a task, hatched; without a task to run it is pale. The height is the share of time, the color what it was.

import {count, percent} from "../../formatting.js"
import {cpu_share} from "./decode.js"
import {spans_in_view} from "./rectangles.js"

const PERIOD = 8, LINE = 2          // pixels: of a hatch
const BETWEEN = 0.25                // of a hatch's lines: how strong it is between them
// Of each hatch, as bokeh writes it, whether a pixel is on a line; rows count from below.
const HATCHES = {
    "/": (pixel, row) => (pixel + PERIOD * row - row) % PERIOD < LINE,
    "\\": (pixel, row) => (pixel + row) % PERIOD < LINE,
    "-": (pixel, row) => row % PERIOD < LINE,
    " ": () => false,
    ".": (pixel, row) => pixel % PERIOD <= LINE && row % PERIOD <= LINE,
}
const CROSSED = (pixel, row) => HATCHES["/"](pixel, row) || HATCHES["\\"](pixel, row)
const MOST_NAMES = 4
const LEAST_NAMED = 0.0005          // of the time: less is 0%

// Of each lane its image from a time on, of so many pixels. `colors` are those of functions, `free` is
// what tasks.py has of the time without a task.
export function images_of(tasks, spans, from, per_pixel, [width, height], models) {
    const {colors, off_cpu_color, free} = models
    const looks = {
        functions: colors.map(blue_green_red),
        off_cpu: blue_green_red(off_cpu_color),
        free: free.colors.map((color, i) => [blue_green_red(color), free.hatches[i]]),
    }
    const shares = free_shares(free, from * tasks.unit, per_pixel * tasks.unit, width)
    const bins = {
        cpu: new Float64Array(width * colors.length), busy: new Float64Array(width * colors.length),
    }
    return spans.map((span) => {
        fill_bins(bins, tasks, span, from, per_pixel, width)
        return image_of(bins, width, height, looks, shares)
    })
}

// For each pixel the shares of the time without a task: the means of the bins that it touches.
function free_shares({start, length, units, shares}, from, per_pixel, width) {
    return Array.from({length: width}, (_, pixel) => {
        const left = (from + pixel * per_pixel - start) / length
        const first = Math.max(0, Math.floor(left))
        const last = Math.max(first + 1, Math.ceil(left + per_pixel / length))
        return left + per_pixel / length <= 0 ? shares.map(() => 0) : shares.map((of_bin) => {
            const touched = of_bin.slice(first, last)
            return touched.reduce((sum, share) => sum + share, 0) / (units * Math.max(1, touched.length))
        })
    })
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
function image_of({cpu, busy}, width, height, looks, shares) {
    const functions = looks.functions.length
    const image = new Uint32Array(height * width)
    for (let pixel = 0; pixel < width; pixel++) {
        const first = pixel * functions
        let reached = 0, filled = 0, longest = -1, off_cpu = 0
        const stack = (color, part, hatch = "") => {
            reached += part
            for (const top = Math.min(height, Math.round(height * reached)); filled < top; filled++)
                image[(height - 1 - filled) * width + pixel] = seen(color, pixel, filled, hatch)
        }
        for (let code = 0; code < functions; code++) {
            if (cpu[first + code] > 0) stack(looks.functions[code], cpu[first + code])
            off_cpu += busy[first + code] - cpu[first + code]
            if (busy[first + code] > (busy[first + longest] ?? 0)) longest = code
        }
        if (off_cpu > 0) stack(looks.off_cpu, off_cpu)
        const rest = Math.max(0, 1 - reached)
        if (filled === 0 && longest >= 0) stack(looks.functions[longest], 1 / height - reached)
        looks.free.forEach(([color, hatch], i) => stack(color, rest * shares[pixel][i], hatch))
    }
    return Object.assign(image, {shape: [height, width], dimension: 2})
}

// The color of a pixel: what is between the lines of a hatch is pale.
function seen(color, pixel, row, hatch) {
    const is_line = hatch === "" || (HATCHES[hatch] ?? CROSSED)(pixel, row)
    return (color | Math.round(255 * (is_line ? 1 : BETWEEN)) << 24) >>> 0
}

// How many tasks ran in a lane between two times, and the shares of that time: of functions, with the
// part of it off the CPU, and of the time without a task. They sum to all of it.
export function text_of_bin(tasks, lane, from, to, {functions, free}) {
    const bounds = tasks.lanes[lane]
    if (bounds === undefined) return ""
    const [[first, last]] = spans_in_view({...tasks, lanes: [bounds]}, from, to)
    const times = new Map()
    let in_bin = 0
    for (let i = first; i < last; i++) {
        if (tasks.stop[i] < from) continue
        in_bin++
        const part = (Math.min(to, tasks.stop[i]) - Math.max(from, tasks.start[i])) / (to - from)
        const [time, off_cpu] = times.get(tasks.function[i]) ?? [0, 0]
        times.set(tasks.function[i], [time + part, off_cpu + part * (1 - cpu_share(tasks, i))])
    }
    const longest_first = [...times].sort((a, b) => b[1][0] - a[1][0])
    const parts = longest_first.slice(0, MOST_NAMES)
        .map(([code, shares]) => text_of_part(functions[code], ...shares))
    if (times.size > MOST_NAMES) {
        const left_out = longest_first.slice(MOST_NAMES).map(([, shares]) => shares)
        parts.push(text_of_part(`${count(left_out.length)} more functions`,
            ...[0, 1].map((kind) => left_out.reduce((sum, shares) => sum + shares[kind], 0))))
    }
    const rest = Math.max(0, 1 - longest_first.reduce((sum, [, [time]]) => sum + time, 0))
    const [shares] = free_shares(free, from * tasks.unit, (to - from) * tasks.unit, 1)
    free.names.forEach((name, i) => {
        if (rest * shares[i] >= LEAST_NAMED) parts.push(`${name} ${percent(rest * shares[i])}`)
    })
    const all = `${count(in_bin)} ${in_bin === 1 ? "task" : "tasks"}`
    return parts.length > 0 ? `${all}: ${parts.join(", ")}` : all
}

function text_of_part(name, time, off_cpu) {
    const waited = off_cpu >= LEAST_NAMED ? ` (${percent(off_cpu)} off the CPU)` : ""
    return `${name} ${percent(time)}${waited}`
}

// A color as images have it: a number whose lowest byte is red.
function blue_green_red(color) {
    const channels = parseInt(color.slice(1, 7), 16)
    return (channels >> 16) | (channels & 0xff00) | (channels & 0xff) << 16
}
