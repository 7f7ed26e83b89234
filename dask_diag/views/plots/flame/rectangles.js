// The rectangles and labels of the calls that are in view.

import {count, percent, seconds} from "../../formatting.js"
import {append, columns_of} from "../columns.js"

export const MATCH = "#d6007a"
const PIXELS_WORTH_DRAWING = 0.5
const PIXELS_WORTH_A_LABEL = 22
const PADDING_OF_LABELS = 7
const NARROW_CALLS = "#e9e9e9"
const ON_MATCH = "#ffffff"
const QUADS = ["left", "right", "top", "bottom", "fill", "alpha", "name", "location", "line", "own", "total"]
const LABELS = ["x", "y", "text", "color", "alpha"]

// Lays out a view between x0 and x1.
//
// `graph` has the tree, its texts, the view and what is searched for; `shown` the bounds, pixels a
// second (`scale`), how wide a text is, and the color of pale labels.
// Calls too narrow to be drawn are one rectangle beside their siblings.
export function layout_of(graph, shown) {
    const {top, parent: above, end, row, total, left} = graph.view
    const layout = {quads: columns_of(...QUADS), labels: columns_of(...LABELS), deepest: 0}
    const narrowest = PIXELS_WORTH_DRAWING / shown.scale
    let narrow = null
    const finish_narrow = () => {
        if (narrow !== null && narrow.to - narrow.from >= narrowest)
            add_narrow(layout.quads, narrow, total[top])
        narrow = null
    }
    for (let i = top; i < end[top];) {
        const to = left[i] + total[i]
        if (total[i] <= 0 || to <= shown.x0 || left[i] >= shown.x1) {
            i = end[i]
        } else if (total[i] < narrowest) {
            if (narrow?.above !== above[i] || narrow.row !== row[i]) {
                finish_narrow()
                narrow = {above: above[i], row: row[i], from: left[i], calls: 0}
            }
            narrow.to = to
            narrow.calls += end[i] - i
            i = end[i]
        } else {
            finish_narrow()
            add_rectangle(layout, graph, shown, i)
            layout.deepest = Math.max(layout.deepest, row[i])
            i++
        }
    }
    finish_narrow()
    return layout
}

function add_narrow(quads, {from, to, row, calls}, all) {
    append(quads, {
        left: from, right: to, top: row, bottom: row + 1, fill: NARROW_CALLS, alpha: 1,
        name: `${count(calls)} calls`, location: "too narrow to be drawn: click their caller to see them",
        line: "", own: "", total: with_share(to - from, all),
    })
}

function add_rectangle(layout, graph, shown, i) {
    const {tree, texts, matches, view} = graph, {row, left, total} = view
    const node = view.node[i]
    const is_match = matches !== null && matches[node] === 1
    const is_pale = matches !== null && !is_match
    const right = left[i] + total[i]
    append(layout.quads, {
        left: left[i], right, top: row[i], bottom: row[i] + 1,
        fill: is_match ? MATCH : texts.colors[tree.color[node]], alpha: is_pale ? 0.3 : 1,
        ...description_of(graph, i),
    })
    const from = Math.max(left[i], shown.x0), to = Math.min(right, shown.x1)
    const pixels = (to - from) * shown.scale
    const text = pixels < PIXELS_WORTH_A_LABEL ? ""
        : label_of(tree, texts, node, pixels - PADDING_OF_LABELS, shown.width_of_text)
    if (text === "") return
    const color = is_match ? ON_MATCH : is_pale ? shown.pale : texts.text_colors[tree.color[node]]
    append(layout.labels, {x: from, y: row[i] + 0.5, text, color, alpha: 1})
}

// What is said of a rectangle: in its tooltip, and of the one that the keyboard is at.
export function description_of({tree, texts, view}, i) {
    const {top, own, total} = view, node = view.node[i]
    const all = total[top]
    return {
        name: texts.names[tree.name[node]], location: location_text(tree, texts, node),
        line: line_text(tree, texts, node),
        own: Number.isNaN(own[i]) ? "" : with_share(own[i], all),
        total: with_share(total[i], all) + (i === top ? "" : share_text(view, i)),
    }
}

function line_text({line, code}, texts, node) {
    if (!(line[node] > 0)) return ""
    const text = texts.code[code[node]]
    return `most time at line ${line[node]}` + (text ? `: ${text}` : "")
}

function share_text({parent: above, row, top, total}, i) {
    if (row[i] < 0) return above[i] === top ? "" : ` (${share_of(total[i], total[above[i]])} of callee)`
    return ` (${share_of(total[i], total[above[i]])} of caller)`
}

function with_share(part, all) {
    return `${seconds(part)}, ${share_of(part, all)}`
}

export function share_of(part, all) {
    return percent(all > 0 ? part / all : 0)
}

function location_text(tree, texts, node) {
    if (tree.depth[node] === 0) return "everything that was sampled"
    if (tree.depth[node] === 1) return texts.roots[texts.names[tree.name[node]]]
    if (tree.is_function[node]) return "tasks of this function"
    if (tree.frames[node] > 1) return "functions of a library, folded"
    return location_of(tree, texts, node) || "no source"
}

export function location_of(tree, texts, node) {
    if (tree.frames[node] > 1) return ""
    const file = texts.files[tree.file[node]]
    return tree.first_line[node] > 0 ? `${file}:${tree.first_line[node]}` : file
}

// The name of a call with its location, if that fits; else as much of the name as does.
function label_of(tree, texts, node, pixels, width_of_text) {
    const name = texts.names[tree.name[node]]
    const location = location_of(tree, texts, node)
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
