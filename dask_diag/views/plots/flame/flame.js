// What a flame graph does in a page: adds up, lays out, draws, and answers what is clicked.
//
// It is called at each event with the name of an action. What lasts between events is in an object
// of the class below, which hangs at the source of the rectangles.

import {count, moment, seconds} from "../../formatting.js"
import {MATCH, layout_of, share_of} from "./rectangles.js"
import {stacked_spans} from "./timeline.js"
import {is_below, matches_of, node_at, samples_below, sums_of, total_of_matches} from "./tree.js"

const ROWS_SHOWN_ABOVE = 3
const MEASURES = ["wall", "cpu", "waiting"]
const FONT = "11px helvetica"
const PALE_LABEL = "#555555"

export function act(models, event, action) {
    const flame = models.drawn.flame_state ??= new FlameGraph(models)
    flame[action](event)
}

class FlameGraph {
    constructor(models) {
        this.models = models
        this.tree = models.nodes.data
        this.texts = models.texts
        this.base = 0               // the node at the top
        this.focus = 0              // the node that is as wide as the graph
        this.range = null           // of time, in seconds
        this.matches = null         // of what is searched for
        this.sums = null
        this.samples = 0
        this.is_drawing = false
        this.goes_deeper = false
        this.pen = document.createElement("canvas").getContext("2d")
    }

    resize() {
        if (this.sums !== null) {
            this.draw_soon()
            return
        }
        this.add_up_and_show()
        this.draw_timeline()
    }

    move() {
        if (this.sums !== null) this.draw_soon()
    }

    zoom({x, y}) {
        const node = node_at(this.tree, this.sums, this.base, x, y)
        if (node >= 0) this.show_node(node)
    }

    go_up() {
        if (this.focus !== this.base) this.show_node(this.tree.parent[this.focus])
    }

    choose() {
        this.base = this.focus = Number(this.models.choice.value)
        this.add_up_and_show()
        this.draw_timeline()
    }

    switch_mode() {
        this.add_up_and_show()
    }

    find() {
        const query = this.models.search.value_input.trim().toLowerCase()
        this.matches = matches_of(this.tree, this.texts, query)
        this.draw_soon()
        this.show_status()
    }

    choose_range({geometry: {x0, x1}, final}) {
        if (!final || !(x1 > x0)) return
        this.range = [x0, x1]
        this.models.box.setv({left: x0, right: x1, visible: true})
        this.add_up_and_show()
    }

    forget_range() {
        if (this.range === null) return
        this.range = null
        this.models.box.visible = false
        this.add_up_and_show()
    }

    reset() {
        const {box, choice, mode, search} = this.models
        this.range = this.matches = null
        box.visible = false
        this.base = this.focus = 0
        choice.value = "0"
        mode.active = 0
        search.setv({value: "", value_input: ""})
        this.add_up_and_show()
        this.draw_timeline()
    }

    add_up_and_show() {
        const {cells, cycles, mode} = this.models
        const measure = MEASURES[mode.active]
        this.sums = sums_of(this.tree, cells.data, cycles.data, measure, this.range)
        this.samples = samples_below(this.tree, this.base, cells.data, cycles.data, this.range)
        if (!is_below(this.tree, this.focus, this.base) || this.sums.total[this.focus] === 0)
            this.focus = this.base
        this.show_node(this.focus)
        this.show_status()
    }

    // Makes a node as wide as the graph, and brings its row into view.
    show_node(node) {
        const {graph} = this.models, {left, total} = this.sums
        this.focus = node
        graph.x_range.setv({start: left[node], end: left[node] + (total[node] || 1)})
        const rows = graph.y_range.start - graph.y_range.end
        const row = this.tree.depth[node] - this.tree.depth[this.base]
        const top = Math.max(0, row < rows / 2 ? 0 : row - ROWS_SHOWN_ABOVE)
        graph.y_range.setv({end: top, start: top + rows})
        this.draw_soon()
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
        // A page that may be dark says in which colour one writes on its background.
        const pale = getComputedStyle(document.documentElement).getPropertyValue("--muted").trim()
        this.pen.font = FONT
        const {quads, labels, deepest} = layout_of(this, {
            x0, x1, scale: graph.inner_width / (x1 - x0), pale: pale || PALE_LABEL,
            width_of_text: (text) => this.pen.measureText(text).width,
        })
        drawn.data = quads
        words.data = labels
        const goes_deeper = deepest >= graph.y_range.start
        if (goes_deeper === this.goes_deeper) return
        this.goes_deeper = goes_deeper
        this.show_status()
    }

    draw_timeline() {
        const {spans, bars, timeline} = this.models
        const {rows, highest} = stacked_spans(spans.data, this.base, this.tree)
        bars.data = rows
        timeline.y_range.setv({start: 0, end: 1.08 * highest || 1})
    }

    show_status() {
        const {tree, base, range, matches, sums: {total}} = this
        const {mode, missing, status, measured} = this.models
        const measure = measured[mode.active]
        const parts = [`<b>${seconds(total[base])}</b>${measure} in ${count(this.samples)} samples`]
        const lost = missing.filter((i) => is_below(tree, i, base)).reduce((sum, i) => sum + total[i], 0)
        if (lost > 0) parts.push(`${share_of(lost, total[base])} could not be sampled`)
        if (range !== null) parts.push(`from ${moment(range[0], 3)} to ${moment(range[1], 3)}`)
        if (matches !== null) {
            const sum = total_of_matches(tree, total, base, matches)
            parts.push(`<b style="background: ${MATCH}; color: #ffffff; padding: 0 4px">`
                + `found: ${seconds(sum)}, ${share_of(sum, total[base])}</b>`)
        }
        if (this.goes_deeper) parts.push("deeper calls: turn the wheel, or drag")
        if (total[base] === 0) parts.push("nothing to draw")
        status.text = parts.join(" · ")
    }
}
