// What a flame graph does in a page: answers what is clicked, typed and chosen, and draws.
//
// It is called at each event with the name of an action. What lasts between events is in an object
// of the class below, which hangs at the source of the rectangles.

import {GraphDrawing} from "./drawing.js"
import {folded_tree} from "./folded.js"
import {next_rectangle} from "./keyboard.js"
import {functions_below, same_function_below, sandwich_of} from "./sandwich.js"
import {in_time_order} from "./time_order.js"
import {by_function, is_below, matches_of, own_of, rectangle_at, shares_of, totals_of,
        weights_of} from "./tree.js"

const MEASURES = ["wall", "cpu", "waiting"]
const ARROWS = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"]
const LEAST_CHANGE = 1e-9           // of a range, which is no choice of a part of it

export function act(models, event, action) {
    const flame = models.drawn.flame_state ??= new FlameGraph(models)
    flame[action](event)
}

class FlameGraph {
    constructor(models) {
        this.models = models
        this.texts = models.texts
        this.tree = models.nodes.data
        this.node_of = null         // of each node its node in the tree, where libraries are folded
        this.base = 0               // the node that is chosen, and below which all is
        this.chosen = -1            // the node whose function a sandwich is of
        this.view = null
        this.focus = 0              // the rectangle that is as wide as the graph
        this.cursor = 0             // the one that the keyboard is at
        this.range = null           // of time, in seconds
        this.keys = null            // of tasks, as codes; or null for all
        this.matches = null         // of what is searched for
        this.history = []
        this.drawing = new GraphDrawing(this)
        this.is_waiting = false
    }

    resize() {
        if (this.view !== null) {
            this.drawing.draw_soon()
            return
        }
        this.drawing.listen_to_keys((event) => this.press(event))
        this.range = this.range_shown()
        this.add_up_and_show()
        this.drawing.draw_timeline()
    }

    move() {
        if (this.view !== null) this.drawing.draw_soon()
    }

    zoom({x, y}) {
        const rectangle = rectangle_at(this.view, x, y)
        if (rectangle >= 0) this.open(rectangle)
    }

    // What a click does, and Enter: makes a call as wide as all, or the function of a sandwich.
    open(rectangle) {
        this.history.push({focus: this.focus, chosen: this.chosen})
        if (this.order !== "sandwich") {
            this.show_rectangle(rectangle)
            return
        }
        this.chosen = this.view.node[rectangle]
        this.add_up_and_show()
    }

    go_back() {
        const before = this.history.pop()
        if (before === undefined) return
        if (before.chosen !== this.chosen) {
            this.chosen = before.chosen
            this.add_up_and_show()
        }
        this.show_rectangle(before.focus)
    }

    go_up() {
        if (this.order === "sandwich") this.go_back()
        else if (this.focus !== this.view.top) this.show_rectangle(this.view.parent[this.focus])
    }

    press(event) {
        if (event.ctrlKey || event.metaKey || event.altKey) return
        if (ARROWS.includes(event.key)) {
            this.cursor = next_rectangle(this.view, this.cursor, event.key)
            this.drawing.show_cursor(true)
        } else if (event.key === "Enter") this.open(this.cursor)
        else if (event.key === "Escape") this.go_back()
        else return
        event.preventDefault()
    }

    choose() {
        this.base = this.node_in_tree(Number(this.models.choice.value))
        this.start_again()
        this.drawing.draw_timeline()
    }

    switch_mode() {
        this.add_up_and_show()
    }

    switch_order() {
        this.chosen = this.view.node[this.cursor]
        this.start_again()
    }

    choose_function() {
        const node = Number(this.models.callee.value)
        if (node === this.chosen || this.order !== "sandwich") return
        this.chosen = node
        this.start_again()
    }

    // Between the tree of all calls and that in which those of libraries are folded.
    fold() {
        const {nodes: {data: nodes}, boxes, choice, folding} = this.models
        const {active} = folding
        this.chosen = active ? nodes.folded[this.chosen] ?? -1 : nodes.folded.indexOf(this.chosen)
        this.folded ??= folded_tree(nodes, boxes.data)
        this.tree = active ? this.folded : nodes
        this.node_of = active ? nodes.folded : null
        this.base = this.node_in_tree(Number(choice.value))
        this.find()
        this.start_again()
    }

    node_in_tree(node) {
        return this.node_of === null ? node : this.node_of[node]
    }

    find() {
        const query = this.models.search.value_input.trim().toLowerCase()
        this.matches = matches_of(this.tree, this.texts, query)
        this.drawing.draw_soon()
        this.drawing.show_status()
    }

    choose_key() {
        const {key} = this.models
        const query = key.value_input.trim()
        const codes = key.completions.flatMap((text, i) => text === query ? [i + 1] : [])
        const partly = key.completions.flatMap((text, i) => text.includes(query) ? [i + 1] : [])
        this.keys = query === "" ? null : new Set(codes.length > 0 ? codes : partly)
        this.add_up_and_show()
    }

    // A drag over the timeline shows that time, in all plots that have its axis.
    choose_range({geometry: {x0, x1}, final}) {
        if (!final || !(x1 > x0)) return
        this.models.timeline.x_range.setv({start: x0, end: x1})
    }

    forget_range() {
        const {x_range} = this.models.timeline
        if (x_range.bounds === null) return
        const [start, end] = x_range.bounds
        x_range.setv({start, end})
    }

    // Once a frame at most, while the time axis moves.
    move_in_time() {
        if (this.is_waiting || this.view === null) return
        this.is_waiting = true
        requestAnimationFrame(() => {
            this.is_waiting = false
            this.range = this.range_shown()
            this.add_up_and_show()
        })
    }

    // The part of time that the axis shows, or null if it shows all.
    range_shown() {
        const {start, end, bounds} = this.models.timeline.x_range
        if (!Array.isArray(bounds)) return null
        const least = LEAST_CHANGE * (bounds[1] - bounds[0])
        return start <= bounds[0] + least && end >= bounds[1] - least ? null : [start, end]
    }

    reset() {
        const {choice, folding, key, mode, order, search} = this.models
        this.matches = this.keys = null
        this.chosen = -1
        choice.value = "0"
        mode.active = 0
        order.active = 0
        folding.active = false
        search.setv({value: "", value_input: ""})
        key.setv({value: "", value_input: ""})
        this.base = 0
        this.forget_range()
        this.start_again()
        this.drawing.draw_timeline()
    }

    get order() {
        return this.models.orders[this.models.order.active]
    }

    get measure() {
        return MEASURES[this.models.mode.active]
    }

    start_again() {
        this.history = []
        this.focus = this.cursor = -1
        this.add_up_and_show()
    }

    add_up_and_show() {
        const {cells, cycles} = this.models
        // Rectangles in the order of time are others as soon as anything else is counted.
        if (this.order === "time") this.history = []
        const weights = weights_of(cells.data, shares_of(cycles.data, this.range), this.keys)
        const counts = own_of(this.tree, cells.data, weights, "count", this.node_of)
        this.samples = totals_of(this.tree, counts)[this.base]
        const own = own_of(this.tree, cells.data, weights, this.measure, this.node_of)
        this.totals = totals_of(this.tree, own)
        const node = this.view?.node[this.focus]
        this.view = this.view_of(own, weights)
        const is_there = this.order === "function" && node === this.focus
            && is_below(this.tree, node, this.base) && this.totals[node] > 0
        this.show_rectangle(is_there ? node : this.view.top)
        this.drawing.show_status()
    }

    view_of(own, weights) {
        const {tree, base, totals} = this
        this.models.callee.visible = this.order === "sandwich"
        if (this.order === "time")
            return in_time_order(tree, this.models.cells.data, weights, this.measure, base, this.node_of)
        if (this.order === "function") return by_function(tree, own, base)
        const functions = functions_below(tree, own, totals, base)
        this.chosen = same_function_below(tree, base, this.chosen)
        if (this.chosen <= base) this.chosen = hottest_call(tree, own, totals, base)
        this.drawing.offer_functions(functions)
        return sandwich_of(tree, own, totals, base, this.chosen)
    }

    // Makes a rectangle as wide as the graph, and brings its row into view.
    show_rectangle(rectangle) {
        this.focus = this.cursor = rectangle
        this.drawing.show_focus()
        this.drawing.show_cursor(false)
    }
}

// The function that a sandwich is of at first: the call with most self time, of tasks if they ran.
function hottest_call(tree, own, total, base) {
    const function_of_tasks = tree.is_function.indexOf(1)
    const is_all = tree.depth[base] === 0 && function_of_tasks >= 0
    const top = is_all ? tree.parent[function_of_tasks] : base
    const calls = functions_below(tree, own, total, top)
        .filter(({node}) => tree.depth[node] > 1 && !tree.is_function[node])
    return calls.reduce((best, call) => call.own > best.own ? call : best,
        {node: calls[0]?.node ?? base, own: 0}).node
}
