// The rectangles and labels of the calls that are in view.

import {count, percent, seconds} from "../../formatting.js"

export const MATCH = "#d6007a"
const PIXELS_WORTH_DRAWING = 0.5
const PIXELS_WORTH_A_LABEL = 22
const PADDING_OF_LABELS = 7
const NARROW_CALLS = "#e9e9e9"
const ON_MATCH = "#ffffff"

// Lays out the calls below `base` between x0 and x1.
//
// `graph` has the tree, its sums and its texts, what is searched for and the node at the top;
// `view` the bounds, pixels a second (`scale`), how wide a text is, and the colour of pale labels.
// Calls too narrow to be drawn are one rectangle beside their siblings.
export function layout_of(graph, view) {
    const {tree, sums: {total, left}, base} = graph
    const layout = {quads: empty_quads(), labels: empty_labels(), deepest: 0}
    const narrowest = PIXELS_WORTH_DRAWING / view.scale
    let narrow = null
    const finish_narrow = () => {
        if (narrow !== null && narrow.to - narrow.from >= narrowest)
            add_narrow(layout.quads, narrow, total[base])
        narrow = null
    }
    for (let i = base; i < tree.end[base];) {
        const row = tree.depth[i] - tree.depth[base], to = left[i] + total[i]
        if (total[i] <= 0 || to <= view.x0 || left[i] >= view.x1) {
            i = tree.end[i]
        } else if (total[i] < narrowest) {
            if (narrow?.parent !== tree.parent[i]) {
                finish_narrow()
                narrow = {parent: tree.parent[i], row, from: left[i], calls: 0}
            }
            narrow.to = to
            narrow.calls += tree.end[i] - i
            i = tree.end[i]
        } else {
            finish_narrow()
            add_node(layout, graph, view, i, row)
            layout.deepest = Math.max(layout.deepest, row)
            i++
        }
    }
    finish_narrow()
    return layout
}

function empty_quads() {
    return {left: [], right: [], top: [], bottom: [], fill: [], alpha: [],
            name: [], location: [], own: [], total: []}
}

function empty_labels() {
    return {x: [], y: [], text: [], color: [], alpha: []}
}

function append(columns, row) {
    for (const name in row) columns[name].push(row[name])
}

function add_narrow(quads, {from, to, row, calls}, all) {
    append(quads, {
        left: from, right: to, top: row, bottom: row + 1, fill: NARROW_CALLS, alpha: 1,
        name: `${count(calls)} calls`, location: "too narrow to be drawn: click their caller to see them",
        own: "", total: with_share(to - from, all),
    })
}

function add_node(layout, graph, view, i, row) {
    const {tree, texts, matches, base, sums: {own, total, left}} = graph
    const is_match = matches !== null && matches[i] === 1
    const is_pale = matches !== null && !is_match
    const right = left[i] + total[i]
    const of_caller = i === base ? ""
        : ` (${share_of(total[i], total[tree.parent[i]])} of caller)`
    append(layout.quads, {
        left: left[i], right, top: row, bottom: row + 1,
        fill: is_match ? MATCH : texts.colors[tree.color[i]], alpha: is_pale ? 0.3 : 1,
        name: texts.names[tree.name[i]], location: location_text(tree, texts, i),
        own: with_share(own[i], total[base]), total: with_share(total[i], total[base]) + of_caller,
    })
    const from = Math.max(left[i], view.x0), to = Math.min(right, view.x1)
    const pixels = (to - from) * view.scale
    const text = pixels < PIXELS_WORTH_A_LABEL ? ""
        : label_of(tree, texts, i, pixels - PADDING_OF_LABELS, view.width_of_text)
    if (text === "") return
    const color = is_match ? ON_MATCH : is_pale ? view.pale : texts.text_colors[tree.color[i]]
    append(layout.labels, {x: from, y: row + 0.5, text, color, alpha: 1})
}

function with_share(part, all) {
    return `${seconds(part)}, ${share_of(part, all)}`
}

export function share_of(part, all) {
    return percent(all > 0 ? part / all : 0)
}

function location_text(tree, texts, i) {
    if (tree.depth[i] === 0) return "everything that was sampled"
    if (tree.depth[i] === 1) return texts.roots[texts.names[tree.name[i]]]
    if (is_function(tree, texts, i)) return "tasks of this function"
    return location_of(tree, texts, i) || "no source"
}

function is_function(tree, texts, i) {
    return tree.depth[i] === 2 && texts.names[tree.name[tree.parent[i]]] === "tasks"
}

function location_of(tree, texts, i) {
    const file = texts.files[tree.file[i]]
    return tree.first_line[i] > 0 ? `${file}:${tree.first_line[i]}` : file
}

// The name of a call with its location, if that fits; else as much of the name as does.
function label_of(tree, texts, i, pixels, width_of_text) {
    const name = texts.names[tree.name[i]]
    const location = location_of(tree, texts, i)
    const label = location ? `${name}  (${location})` : name
    return width_of_text(label) <= pixels ? label : fitted(name, pixels, width_of_text)
}

function fitted(text, pixels, width_of_text) {
    const width = width_of_text(text)
    if (width <= pixels) return text
    let letters = Math.floor(text.length * pixels / width)
    while (letters > 1 && width_of_text(`${text.slice(0, letters)}…`) > pixels) letters--
    return letters > 1 ? `${text.slice(0, letters)}…` : ""
}
