// The tooltips of tasks, and of pixels in which there are many.

import {percent, seconds} from "../../formatting.js"

export function duration({left, right}, i) {
    return seconds(right[i] - left[i])
}

export function cpu_time({left, right, cpu}, i) {
    if (isNaN(cpu[i])) return "unknown"
    const length = right[i] - left[i]
    const share = length > 0 ? ` (${percent(cpu[i] / length)})` : ""
    return `${seconds(cpu[i])}${share}, ${seconds(Math.max(0, length - cpu[i]))} non-CPU`
}

// The name of the lane at this height.
export function worker_at(names, y, lane_height) {
    return names[Math.floor(y / lane_height)] ?? ""
}

// What tasks.js says of the pixel there, once it has drawn any.
export function text_of_pixel(pixels, {x, y}) {
    return pixels.text_at?.(x, y) ?? ""
}
