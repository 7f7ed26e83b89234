// The rectangle of each task, and the marks of those that failed or were not finished.

import {append, columns_of} from "../columns.js"
import {first_above} from "../in_view.js"
import {cpu_share} from "./decode.js"

// Of each lane the indices from the first to behind the last task between two times.
export function spans_in_view(tasks, from, to) {
    return tasks.lanes.map(({first, last}) =>
        [first_above(tasks.reach, from, first, last), first_above(tasks.start, to, first, last)])
}

export function tasks_in_spans(spans) {
    return spans.reduce((sum, [first, last]) => sum + Math.max(0, last - first), 0)
}

// A column for each property of a rectangle; `off_cpu` is the height of the time off the CPU.
export function rectangles_of(tasks, spans, from, key_of, {lane_height, full}) {
    const columns = columns_of("left", "right", "top", "off_cpu", "function", "outcome", "cpu", "key")
    spans.forEach(([first, last], lane) => {
        for (let i = first; i < last; i++) {
            if (tasks.stop[i] < from) continue
            append(columns, {
                left: tasks.start[i] * tasks.unit, right: tasks.stop[i] * tasks.unit,
                top: lane * lane_height, off_cpu: Math.round((1 - cpu_share(tasks, i)) * full),
                function: tasks.function[i], outcome: tasks.outcome[i],
                cpu: tasks.cpu[i] * tasks.unit, key: key_of(i),
            })
        }
    })
    return columns
}

// Some of the tasks, between two times; those that meet in a pixel of their lane are one.
export function marks_of(tasks, indices, from, to, per_pixel, lane_height) {
    const columns = columns_of("left", "right", "top")
    let latest = null
    for (const i of indices) {
        if (tasks.stop[i] < from || tasks.start[i] > to) continue
        const lane = tasks.lane[i]
        const pixel = Math.floor((tasks.start[i] - from) / per_pixel)
        if (latest !== null && latest.lane === lane && latest.pixel === pixel
            && tasks.stop[i] - tasks.start[i] < per_pixel) continue
        latest = {lane, pixel}
        append(columns, {
            left: tasks.start[i] * tasks.unit, right: tasks.stop[i] * tasks.unit, top: lane * lane_height,
        })
    }
    return columns
}
