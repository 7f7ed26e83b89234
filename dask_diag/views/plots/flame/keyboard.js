// Where the arrow keys lead in a view: up and down a row, left and right among calls of one parent.

// The rectangle that a key leads to from another; the same one where there is none.
export function next_rectangle(view, i, key) {
    const by_key = {
        ArrowUp: () => view.row[i] > 0 ? view.parent[i] : widest_child(view, i, -1),
        ArrowDown: () => view.row[i] < 0 ? view.parent[i] : widest_child(view, i, 1),
        ArrowLeft: () => sibling(view, i, -1),
        ArrowRight: () => sibling(view, i, 1),
    }
    const next = by_key[key]?.() ?? i
    return next < 0 ? i : next
}

function children_of({end, row, total}, i, step) {
    const children = []
    for (let child = i + 1; child < end[i]; child = end[child])
        if (Math.sign(row[child]) === step && total[child] > 0) children.push(child)
    return children
}

function widest_child(view, i, step) {
    const children = children_of(view, i, step)
    return children.reduce((best, child) => view.total[child] > view.total[best] ? child : best,
        children[0] ?? -1)
}

function sibling(view, i, step) {
    if (i === view.top) return i
    const siblings = children_of(view, view.parent[i], Math.sign(view.row[i]))
    return siblings[siblings.indexOf(i) + step] ?? i
}
