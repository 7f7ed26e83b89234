// The view of calls in the order of time.
//
// Samples are counted by cycle: of calls within one cycle the order is not recorded. They have that
// of the tree in one cycle and the reverse in the next one, which so begins with the calls with which
// the last one ended: these go on, and are one rectangle.

import {append} from "../columns.js"
import {is_below, values_of} from "./tree.js"

// `weights` is what each cell counts; the seconds of the threads stand one after another.
export function in_time_order(tree, cells, weights, measure, base, node_of = null) {
    const rows = {parent: [-1], end: [1], row: [0], node: [base], own: [0], left: [0], right: [0]}
    const open = [0]
    let now = 0
    const close_to = (length) => {
        while (open.length > length) {
            const closed = open.pop()
            rows.end[closed] = rows.node.length
            rows.right[closed] = now
        }
    }
    for (const {node, seconds} of pieces_of(tree, cells, weights, measure, base, node_of)) {
        const path = path_to(tree, node, base)
        let common = 1
        while (common < open.length && rows.node[open[common]] === path[common]) common++
        close_to(common)
        for (let depth = common; depth < path.length; depth++)
            open.push(begin(rows, open.at(-1), depth, path[depth], now))
        rows.own[open.at(-1)] += seconds
        now += seconds
    }
    close_to(0)
    const total = Float64Array.from(rows.left, (left, i) => rows.right[i] - left)
    return {top: 0, first_row: 0, ...rows, total}
}

// The cells that count, in order of their cycles.
function pieces_of(tree, cells, weights, measure, base, node_of) {
    const pieces = [], values = values_of(cells, measure)
    for (let i = 0; i < cells.node.length; i++) {
        const node = node_of === null ? cells.node[i] : node_of[cells.node[i]]
        const seconds = weights[i] * Math.max(0, values[i])
        if (seconds > 0 && is_below(tree, node, base)) pieces.push({cycle: cells.cycle[i], node, seconds})
    }
    return pieces.sort((a, b) => a.cycle - b.cycle
        || (a.cycle % 2 === 0 ? a.node - b.node : b.node - a.node))
}

function path_to(tree, node, base) {
    const path = [node]
    while (path.at(-1) !== base) path.push(tree.parent[path.at(-1)])
    return path.reverse()
}

function begin(rows, above, row, node, now) {
    append(rows, {parent: above, end: 0, row, node, own: 0, left: now, right: now})
    return rows.node.length - 1
}
