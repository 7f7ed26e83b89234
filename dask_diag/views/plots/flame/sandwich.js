// The view of one function: who called it, merged, above it, and what it called, merged, below.

import {append, columns_of} from "../columns.js"
import {is_below, left_edges} from "./tree.js"

// Of each function that was called below a node its seconds, and the first node of it.
//
// In recursion only its outermost call counts, which has all the others.
export function functions_below(tree, own, total, base) {
    const functions = new Map()
    const outermost_ends = new Map()
    for (let i = base; i < tree.end[base]; i++) {
        const entry = functions.get(tree.kind[i]) ?? {node: i, own: 0, total: 0}
        functions.set(tree.kind[i], entry)
        entry.own += own[i]
        if (i < (outermost_ends.get(tree.kind[i]) ?? 0)) continue
        outermost_ends.set(tree.kind[i], tree.end[i])
        entry.total += total[i]
    }
    return [...functions.values()]
}

// The view of the function that `chosen` is a call of, of its calls below `base`.
export function sandwich_of(tree, own, total, base, chosen) {
    const calls = outermost_calls(tree, base, tree.kind[chosen])
    const callees = new Merged(chosen), callers = new Merged(chosen)
    for (const call of calls) {
        const merged = new Map([[call, 0]])
        callees.add(0, own[call], total[call])
        for (let i = call + 1; i < tree.end[call]; i++) {
            const into = callees.child(merged.get(tree.parent[i]), tree.kind[i], i)
            merged.set(i, into)
            callees.add(into, own[i], total[i])
        }
        let above = 0
        callers.add(0, 0, total[call])
        for (let i = call; i !== base;) {
            i = tree.parent[i]
            above = callers.child(above, tree.kind[i], i)
            callers.add(above, 0, total[call])
        }
    }
    return joined(callees.sorted(), callers.sorted())
}

function outermost_calls(tree, base, kind) {
    const calls = []
    for (let i = base; i < tree.end[base];) {
        if (tree.kind[i] === kind) calls.push(i)
        i = tree.kind[i] === kind ? tree.end[i] : i + 1
    }
    return calls
}

// Nodes of which those of one function with the same way from the first one are one.
class Merged {
    constructor(node) {
        this.parent = [-1]
        this.node = [node]
        this.own = [0]
        this.total = [0]
        this.children = [new Map()]
    }

    child(above, kind, node) {
        const children = this.children[above]
        if (!children.has(kind)) {
            children.set(kind, this.node.length)
            append(this, {parent: above, node, own: 0, total: 0, children: new Map()})
        }
        return children.get(kind)
    }

    add(index, own, total) {
        this.own[index] += own
        this.total[index] += total
    }

    // The same with each node before its children, and of these the longest first.
    sorted() {
        const rows = columns_of("parent", "end", "row", "node", "own", "total")
        const waiting = [{index: 0, above: -1, row: 0}]
        while (waiting.length > 0) {
            const {index, above, row} = waiting.pop()
            const at = rows.node.length
            append(rows, {parent: above, end: at + 1, row, node: this.node[index],
                          own: this.own[index], total: this.total[index]})
            const shortest_first = [...this.children[index].values()]
                .sort((a, b) => this.total[a] - this.total[b] || b - a)
            for (const child of shortest_first) waiting.push({index: child, above: at, row: row + 1})
        }
        for (let i = rows.node.length - 1; i > 0; i--)
            rows.end[rows.parent[i]] = Math.max(rows.end[rows.parent[i]], rows.end[i])
        return {...rows, left: left_edges(rows, rows.total)}
    }
}

// Callees with the callers above them, which stand after them in the order of the view.
function joined(callees, callers) {
    const shift = callees.node.length - 1
    const added = {
        parent: (i) => i === 0 ? 0 : i + shift, end: (i) => i + shift, row: (i) => -i,
        node: (i) => i, own: () => NaN, total: (i) => i, left: (i) => i,
    }
    const view = {}
    for (const column in added)
        view[column] = [...callees[column], ...callers[column].slice(1).map(added[column])]
    view.end[0] = view.node.length
    return {top: 0, first_row: Math.min(0, -Math.max(...callers.row)), ...view}
}

// Another node of the same function, in what is below `base`; -1 if it was not called there.
export function same_function_below(tree, base, node) {
    if (is_below(tree, node, base)) return node
    for (let i = base; i < tree.end[base]; i++) if (tree.kind[i] === tree.kind[node]) return i
    return -1
}
