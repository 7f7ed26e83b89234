// The tree of calls, and what of the samples is asked for, added up.
//
// Nodes stand before what they called and the callees of a node are in order, so a subtree is a
// range of indices: from a node to its `end`.
//
// What is drawn is a view: rectangles in such an order, too. Of each rectangle it has `parent` and
// `end` in the view, `node` of the tree, `row`, seconds (`own`, `total`) and where it begins
// (`left`); the view has its `top`, the rectangle as wide as all, and its `first_row`.

export function is_below(tree, node, top) {
    return node >= top && node < tree.end[top]
}

// How much of each cycle is in a range of time; all of it if the range is null.
export function shares_of(cycles, range) {
    return cycles.start.map((start, i) => share_in_range(start, cycles.stop[i], range))
}

function share_in_range(start, stop, range) {
    if (range === null) return 1
    const [from, to] = range
    if (stop <= start) return start >= from && start <= to ? 1 : 0
    return Math.max(0, Math.min(stop, to) - Math.max(start, from)) / (stop - start)
}

// What each cell counts: its cycle's share, and nothing if its key is not one of `keys`.
export function weights_of(cells, shares, keys) {
    return Float64Array.from(cells.cycle, (cycle, i) =>
        keys === null || keys.has(cells.key[i]) ? shares[cycle] : 0)
}

// A number of each cell. Of wall seconds the page has the parts: CPU, waiting, and either.
export function values_of(cells, measure) {
    const {cpu, waiting, unknown} = cells
    return cells[measure] ?? Float64Array.from(cpu, (seconds, i) => seconds + waiting[i] + unknown[i])
}

// The self time of each node; `node_of` maps the nodes of cells to those of the tree.
export function own_of(tree, cells, weights, measure, node_of = null) {
    const own = new Float64Array(tree.end.length), values = values_of(cells, measure)
    for (let i = 0; i < cells.node.length; i++) {
        const node = node_of === null ? cells.node[i] : node_of[cells.node[i]]
        own[node] += weights[i] * Math.max(0, values[i])
    }
    return own
}

export function totals_of(tree, own) {
    const total = Float64Array.from(own)
    for (let i = total.length - 1; i > 0; i--) total[tree.parent[i]] += total[i]
    return total
}

// The view in which the calls of a function by the same callers are one rectangle.
export function by_function(tree, own, base) {
    const total = totals_of(tree, own)
    return {
        top: base, first_row: 0, parent: tree.parent, end: tree.end,
        node: Int32Array.from(total, (_, i) => i),
        row: Int32Array.from(tree.depth, (depth) => depth - tree.depth[base]),
        own, total, left: left_edges(tree, total),
    }
}

// Callees stand side by side below their caller, in order.
export function left_edges(tree, total) {
    const left = new Float64Array(total.length), free = new Float64Array(total.length)
    for (let i = 1; i < total.length; i++) {
        const above = tree.parent[i]
        free[i] = left[i] = free[above]
        free[above] += total[i]
    }
    return left
}

// The rectangle at this point of a view; -1 if there is none.
export function rectangle_at({top, end, row, left, total}, x, y) {
    const wanted = Math.floor(y)
    for (let i = top; i < end[top];) {
        const is_inside = x >= left[i] && x < left[i] + total[i]
        if (is_inside && row[i] === wanted) return i
        i = is_inside ? i + 1 : end[i]
    }
    return -1
}

// Of each node whether its name, or the file of a call, contains a text; null if there is none.
export function matches_of(tree, texts, query) {
    if (query === "") return null
    const contains = (text) => text.toLowerCase().includes(query)
    const names = texts.names.map(contains), files = texts.files.map(contains)
    return Uint8Array.from(tree.name, (name, i) => Number(
        tree.depth[i] > 0 && (names[name] || tree.depth[i] > 1 && files[tree.file[i]])))
}

// The seconds of all that match below a node; what a match called is in its own.
export function total_of_matches(tree, total, base, matches) {
    let sum = 0
    for (let i = base; i < tree.end[base];) {
        if (matches[i]) sum += total[i]
        i = matches[i] ? tree.end[i] : i + 1
    }
    return sum
}
