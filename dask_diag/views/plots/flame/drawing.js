// How a flame graph looks: its rectangles, timeline, detail and the line of text above.

import {count, moment, seconds} from "../../formatting.js"
import {surface_of} from "./surface.js"
import {MATCH, description_of, layout_of, location_of, share_of} from "./rectangles.js"
import {stacked_spans} from "./timeline.js"
import {is_below, total_of_matches} from "./tree.js"

const ROWS_SHOWN_ABOVE = 3
const SHARE_OF_CALLERS = 0.4        // of the rows, at most
const FONT = "11px helvetica"
const PALE_LABEL = "#555555"
const MOST_FUNCTIONS = 300          // to choose from
const KEYS = "ArrowUp ArrowDown ArrowLeft ArrowRight Enter Escape"

export class GraphDrawing {
    constructor(flame) {
        this.flame = flame
        this.models = flame.models
        this.is_drawing = false
        this.goes_deeper = false
        this.pen = document.createElement("canvas").getContext("2d")
    }

    listen_to_keys(press) {
        const {graph, detail} = this.models
        surface_of(graph, (surface) => {
            surface.setAttribute("role", "application")
            surface.setAttribute("aria-label", "Flame graph: arrow keys walk from call to call, "
                + "Enter zooms, Escape goes back")
            surface.setAttribute("aria-keyshortcuts", KEYS)
            surface.addEventListener("keydown", press)
        })
        surface_of(detail, (element) => element.setAttribute("role", "status"))
    }

    // Once a frame at most.
    draw_soon() {
        if (this.is_drawing) return
        this.is_drawing = true
        requestAnimationFrame(() => this.draw())
    }

    draw() {
        this.is_drawing = false
        const {graph, drawn, words} = this.models
        const {start: x0, end: x1} = graph.x_range
        // A page that may be dark says in which color one writes on its background.
        const pale = getComputedStyle(document.documentElement).getPropertyValue("--muted").trim()
        this.pen.font = FONT
        const {quads, labels, deepest} = layout_of(this.flame, {
            x0, x1, scale: graph.inner_width / (x1 - x0), pale: pale || PALE_LABEL,
            width_of_text: (text) => this.pen.measureText(text).width,
        })
        const goes_deeper = deepest >= graph.y_range.start
        if (goes_deeper !== this.goes_deeper) {
            this.goes_deeper = goes_deeper
            this.show_status()
        }
        // Last: a text paints at once, also what bokeh has taken over only half.
        drawn.data = quads
        words.data = labels
    }

    draw_timeline() {
        const {spans, bars, timeline, nodes, choice} = this.models
        const {rows, highest} = stacked_spans(spans.data, Number(choice.value), nodes.data)
        bars.data = rows
        timeline.y_range.setv({start: 0, end: 1.08 * highest || 1})
    }

    // Makes the rectangle in focus as wide as the graph, and brings its row into view.
    show_focus() {
        const {graph} = this.models, {focus, view} = this.flame
        const {left, total, row, first_row} = view
        const rows = graph.y_range.start - graph.y_range.end
        const deepest = row.reduce((most, depth) => Math.max(most, depth), 0)
        const above = first_row < 0 ? Math.floor(SHARE_OF_CALLERS * rows) : ROWS_SHOWN_ABOVE
        const is_near = row[focus] - first_row <= (first_row < 0 ? above : rows / 2 - 1)
        const top = is_near || deepest - first_row < rows ? first_row : row[focus] - above
        graph.x_range.setv({start: left[focus], end: left[focus] + (total[focus] || 1)})
        graph.y_range.setv({bounds: [first_row, Math.max(first_row + rows, deepest + 2)]})
        graph.y_range.setv({end: top, start: top + rows})
        this.draw_soon()
    }

    // Shows of which rectangle the keyboard asks; `is_asked` when it was moved there.
    show_cursor(is_asked) {
        const {cursor, detail, graph} = this.models
        const {view, cursor: i} = this.flame
        detail.text = detail_text(description_of(this.flame, i))
        cursor.setv({left: view.left[i], right: view.left[i] + view.total[i],
                     top: view.row[i], bottom: view.row[i] + 1, visible: is_asked})
        const {start: bottom, end: top} = graph.y_range, rows = bottom - top
        if (view.row[i] >= top && view.row[i] + 1 <= bottom) return
        const start = view.row[i] < top ? view.row[i] : view.row[i] + 1 - rows
        graph.y_range.setv({end: start, start: start + rows})
    }

    // The functions that a sandwich can be of, those with most time first.
    offer_functions(functions) {
        const {callee} = this.models, {tree, texts, chosen} = this.flame
        const sorted = functions.filter(({total}) => total > 0).sort((a, b) => b.total - a.total)
        const offered = sorted.slice(0, MOST_FUNCTIONS)
        const kind = tree.kind[chosen]
        const label_of = (node, total) => `${seconds(total)}  ${texts.names[tree.name[node]]}  `
            + location_of(tree, texts, node)
        const options = offered.map(({node, total}) =>
            [String(tree.kind[node] === kind ? chosen : node), label_of(node, total)])
        if (!offered.some(({node}) => tree.kind[node] === kind))
            options.push([String(chosen), label_of(chosen, 0)])
        callee.setv({options, value: String(chosen)})
    }

    show_status() {
        const {tree, base, range, matches, totals, samples, keys, order} = this.flame
        const {mode, status, measured, resolution} = this.models
        const parts = [`<b>${seconds(totals[base])}</b>${measured[mode.active]} in ${count(samples)} samples`]
        const lost = tree.missing.reduce((sum, is_missing, i) =>
            is_missing && is_below(tree, i, base) ? sum + totals[i] : sum, 0)
        if (lost > 0) parts.push(`${share_of(lost, totals[base])} could not be sampled`)
        if (range !== null) parts.push(`from ${moment(range[0], 3)} to ${moment(range[1], 3)}`)
        if (keys !== null) parts.push(`of ${count(keys.size)} task${keys.size === 1 ? "" : "s"} by key`)
        if (matches !== null) {
            const sum = total_of_matches(tree, totals, base, matches)
            parts.push(`<b style="background: ${MATCH}; color: #ffffff; padding: 0 4px">`
                + `found: ${seconds(sum)}, ${share_of(sum, totals[base])}</b>`)
        }
        if (order === "time") parts.push(`the order within ${seconds(resolution)} is not recorded`)
        if (this.goes_deeper) parts.push("deeper calls: turn the wheel, or drag")
        if (totals[base] === 0) parts.push("nothing to draw")
        status.text = parts.join(" · ")
    }
}

function detail_text({name, location, line, own, total}) {
    const box = document.createElement("div")
    const add = (text, tag) => {
        const element = document.createElement(tag)
        element.textContent = text
        box.append(element)
    }
    const parts = [location, line, total, own && `self ${own}`]
    add(name, "b")
    add(parts.filter(Boolean).map((part) => ` · ${part}`).join(""), "span")
    return box.innerHTML
}
