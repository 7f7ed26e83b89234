// The timeline below the flame graph: seconds per second of the functions that are shown.

// Of each span of time what is stacked there, of one function's node or, with 0, of all.
export function stacked_spans({left, right, node, cpu, waiting, unknown}, base) {
    const rows = {left: [], right: [], cpu: [], waiting: [], either: []}
    let last = -1, highest = 0
    for (let i = 0; i < node.length; i++) {
        if (base !== 0 && node[i] !== base) continue
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
