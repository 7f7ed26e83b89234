// The tree of calls, and what of the samples is asked for, added up.
//
// Nodes stand before what they called and the callees of a node are in order, so a subtree is a
// range of indices: from a node to its `end`.

export function is_below(tree, node, top) {
    return node >= top && node < tree.end[top]
}

// Of each node its self time and its total, and where its rectangle begins.
//
// `cells` has what each node had in each cycle; `range` limits it to some time, or is null.
export function sums_of(tree, cells, cycles, measure, range) {
    const length = tree.end.length
    const own = new Float64Array(length)
    const shares = cycles.start.map((start, i) => share_in_range(start, cycles.stop[i], range))
    for (let i = 0; i < cells.node.length; i++)
        own[cells.node[i]] += shares[cells.cycle[i]] * Math.max(0, cells[measure][i])
    const total = Float64Array.from(own)
    for (let i = length - 1; i > 0; i--) total[tree.parent[i]] += total[i]
    return {own, total, left: left_edges(tree, total)}
}

// How many samples were taken in a subtree.
export function samples_below(tree, top, cells, cycles, range) {
    let sum = 0
    for (let i = 0; i < cells.node.length; i++) {
        const cycle = cells.cycle[i]
        if (is_below(tree, cells.node[i], top))
            sum += share_in_range(cycles.start[cycle], cycles.stop[cycle], range) * cells.count[i]
    }
    return sum
}

function share_in_range(start, stop, range) {
    if (range === null) return 1
    const [from, to] = range
    if (stop <= start) return start >= from && start <= to ? 1 : 0
    return Math.max(0, Math.min(stop, to) - Math.max(start, from)) / (stop - start)
}

// Callees stand side by side below their caller, in order.
function left_edges(tree, total) {
    const left = new Float64Array(total.length), free = new Float64Array(total.length)
    for (let i = 1; i < total.length; i++) {
        const parent = tree.parent[i]
        free[i] = left[i] = free[parent]
        free[parent] += total[i]
    }
    return left
}

// The node whose rectangle is at this point, below `base`; -1 if there is none.
export function node_at(tree, {left, total}, base, x, y) {
    const depth = tree.depth[base] + Math.floor(y)
    for (let i = base; i < tree.end[base];) {
        const is_inside = x >= left[i] && x < left[i] + total[i]
        if (is_inside && tree.depth[i] === depth) return i
        i = is_inside ? i + 1 : tree.end[i]
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

// The seconds of all that match; what a match called is in its own.
export function total_of_matches(tree, total, base, matches) {
    let sum = 0
    for (let i = base; i < tree.end[base];) {
        if (matches[i]) sum += total[i]
        i = matches[i] ? tree.end[i] : i + 1
    }
    return sum
}
