// The tree in which the functions of libraries are folded.

const OF_FIRST = ["name", "file", "first_line", "color", "kind", "is_function", "missing", "line",
    "code"]

// `nodes.folded` is for each node the number of its node in this tree; nodes before what they
// called, and callees in order. `boxes` has of those that represent several functions their
// `node` in this tree, their `name` and `color`, and how many `frames` they represent.
export function folded_tree(nodes, boxes) {
    const length = nodes.folded.reduce((most, node) => Math.max(most, node), 0) + 1
    const first = new Int32Array(length).fill(-1)
    nodes.folded.forEach((node, i) => {
        if (first[node] < 0) first[node] = i
    })
    const tree = {
        parent: Int32Array.from(first, (node) => node > 0 ? nodes.folded[nodes.parent[node]] : -1),
        depth: new Int32Array(length),
        end: Int32Array.from(first, (_, i) => i + 1),
        frames: new Int32Array(length).fill(1),
    }
    for (const name of OF_FIRST) tree[name] = Int32Array.from(first, (node) => nodes[name][node])
    for (let i = 1; i < length; i++) tree.depth[i] = tree.depth[tree.parent[i]] + 1
    for (let i = length - 1; i > 0; i--)
        tree.end[tree.parent[i]] = Math.max(tree.end[tree.parent[i]], tree.end[i])
    name_boxes(tree, boxes)
    return tree
}

function name_boxes(tree, boxes) {
    const kinds = tree.kind.reduce((most, kind) => Math.max(most, kind), 0) + 1
    boxes.node.forEach((node, i) => {
        tree.name[node] = boxes.name[i]
        tree.color[node] = boxes.color[i]
        tree.frames[node] = boxes.frames[i]
        if (boxes.frames[i] < 2) return
        tree.kind[node] = kinds + boxes.name[i]
        tree.line[node] = 0
    })
}
