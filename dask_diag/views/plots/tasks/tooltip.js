// The durations in the tooltips of tasks.

import {percent, seconds} from "../../formatting.js"

export function duration({left, right}, i) {
    return seconds(right[i] - left[i])
}

export function cpu_time({left, right, cpu}, i) {
    if (isNaN(cpu[i])) return "unknown"
    const length = right[i] - left[i]
    const share = length > 0 ? ` (${percent(cpu[i] / length)})` : ""
    return `${seconds(cpu[i])}${share}, ${seconds(Math.max(0, length - cpu[i]))} off-CPU`
}
