// The timeline below the flame graph: seconds per second of the roots and functions that are shown.

import {is_below} from "./tree.js"

// Of each span of time what is stacked there, of the roots and functions below a node or, with 0,
// of all.
export function stacked_spans({left, right, node, cpu, waiting, unknown}, base, tree) {
    const rows = {left: [], right: [], cpu: [], waiting: [], either: []}
    let last = -1, highest = 0
    for (let i = 0; i < node.length; i++) {
        if (base !== 0 && !is_below(tree, node[i], base)) continue
        if (last < 0 || rows.left[last] !== left[i]) {
            last++
            rows.left.push(left[i])
            rows.right.push(right[i])
            for (const column of [rows.cpu, rows.waiting, rows.either]) column.push(0)
        }
        rows.cpu[last] += cpu[i]
        rows.waiting[last] += cpu[i] + waiting[i]
        rows.either[last] += cpu[i] + waiting[i] + unknown[i]
        highest = Math.max(highest, rows.either[last])
    }
    return {rows, highest}
}
