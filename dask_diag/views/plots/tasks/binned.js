// Many tasks: an image of each lane, of which a pixel shows what its worker did in that time.

import {count, percent} from "../../formatting.js"
import {cpu_share} from "./decode.js"
import {spans_in_view} from "./rectangles.js"

const ROWS = 12                     // of a lane's image: so many steps of a share of CPU
const WEAKEST_BASELINE = 0.5        // how strong the lowest row is at least where any task ran
const NOT_CPU = 0.35                // how strong the colour is above the share of CPU
const MOST_NAMES = 4

// Of each lane its image from a time on, and of how many tasks' functions there are colours.
export function images_of(tasks, spans, from, per_pixel, width, colors) {
    const pixel_colors = colors.map(blue_green_red)
    const bins = {
        busy: new Float64Array(width), cpu: new Float64Array(width),
        longest: new Float64Array(width), by_function: new Float64Array(width * colors.length),
    }
    return spans.map((span) => {
        const dominant = fill_bins(bins, tasks, span, from, per_pixel)
        return image_of(bins, dominant, pixel_colors)
    })
}

// As a number whose lowest byte is red, as images have it.
function blue_green_red(color) {
    const channels = parseInt(color.slice(1, 7), 16)
    return (channels >> 16) | (channels & 0xff00) | (channels & 0xff) << 16
}

// For each pixel the seconds that its worker was busy, and the function that had most of them.
function fill_bins({busy, cpu, longest, by_function}, tasks, [start, end], from, per_pixel) {
    for (const column of [busy, cpu, longest, by_function]) column.fill(0)
    const width = busy.length, functions = by_function.length / width
    const dominant = new Int32Array(width).fill(-1)
    for (let i = start; i < end; i++) {
        const left = (tasks.start[i] - from) / per_pixel, right = (tasks.stop[i] - from) / per_pixel
        if (right < 0) continue
        const code = tasks.function[i], share = cpu_share(tasks, i)
        const first = Math.max(0, Math.floor(left)), last = Math.min(width - 1, Math.floor(right))
        for (let pixel = first; pixel <= last; pixel++) {
            const part = Math.min(right, pixel + 1) - Math.max(left, pixel)
            busy[pixel] += part
            cpu[pixel] += part * share
            const time = by_function[pixel * functions + code] += part
            if (dominant[pixel] < 0 || time > longest[pixel]) {
                longest[pixel] = time
                dominant[pixel] = code
            }
        }
    }
    return dominant
}

// A colour is as strong as the worker was busy, so that a pixel hardly busy is hardly coloured; a
// task that is alone there would not be seen, but for the baseline.
function image_of({busy, cpu}, dominant, pixel_colors) {
    const width = busy.length
    const image = new Uint32Array(ROWS * width)
    for (let pixel = 0; pixel < width; pixel++) {
        if (dominant[pixel] < 0) continue
        const strength = Math.min(1, busy[pixel])
        const filled = busy[pixel] > 0 ? Math.round(ROWS * cpu[pixel] / busy[pixel]) : 0
        for (let row = 0; row < ROWS; row++) {
            const share = strength * (row >= ROWS - filled ? 1 : NOT_CPU)
            const shown = row === ROWS - 1 ? Math.max(WEAKEST_BASELINE, share) : share
            const alpha = Math.round(255 * shown)
            image[row * width + pixel] = (pixel_colors[dominant[pixel]] | alpha << 24) >>> 0
        }
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
