// Which task is at a place of the plot, and how it and its path are marked there.

import {pixel_width} from "../in_view.js"
import {spans_in_view} from "./rectangles.js"

const REACH = 3                     // pixels beside a task that count as the task
const MOST_MARKED = 3000            // tasks of a path, the last ones

// The number of the task at a time and a height; null if there is none.
export function task_at({plot, tasks, lane_height, full}, x, y) {
    const lane = tasks.lanes[Math.floor(y / lane_height)]
    if (lane === undefined || y % lane_height > full) return null
    const time = x / tasks.unit, reach = REACH * pixel_width(plot) / tasks.unit
    const [[first, last]] = spans_in_view({...tasks, lanes: [lane]}, time - reach, time + reach)
    let nearest = null, least = Infinity
    for (let i = first; i < last; i++) {
        const distance = Math.max(0, tasks.start[i] - time, time - tasks.stop[i])
        // Of several the one drawn last is seen.
        if (distance > reach || distance > least) continue
        nearest = i
        least = distance
    }
    return nearest
}

export function outlines_of({tasks, lane_height}, numbers) {
    const marked = numbers.slice(-MOST_MARKED)
    return {
        left: marked.map((i) => tasks.start[i] * tasks.unit),
        right: marked.map((i) => tasks.stop[i] * tasks.unit),
        top: marked.map((i) => tasks.lane[i] * lane_height),
    }
}

// Lines from the stop of each task to the start of the next one.
export function lines_of({tasks, lane_height, full}, numbers) {
    const marked = numbers.slice(-MOST_MARKED)
    const pairs = marked.slice(1).map((i, n) => [marked[n], i])
    const middle = (i) => tasks.lane[i] * lane_height + full / 2
    return {
        x0: pairs.map(([before]) => tasks.stop[before] * tasks.unit),
        y0: pairs.map(([before]) => middle(before)),
        x1: pairs.map(([, i]) => tasks.start[i] * tasks.unit),
        y1: pairs.map(([, i]) => middle(i)),
    }
}
