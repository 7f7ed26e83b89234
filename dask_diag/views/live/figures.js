// The figures of a live page: what an answer says, put into bokeh's sources.

import {images, rectangles} from "./stream.js"

const LANE = 24                     // pixels
const TALLEST = 420
const AXES = 14                     // pixels of a figure that lanes have not
const FEWEST_COLUMNS = 100, MOST_COLUMNS = 2000
const SPARE = 1.08                  // of the largest value, that it does not touch the edge
const LEAST_MEMORY = 1e6            // bytes, of an axis before anything is known
const FAR = 2                       // a limit that is more times higher is not drawn

export class Figures {
    constructor(bokeh) {
        this.named = (name) => bokeh.get_model_by_name(name)
        this.view = this.named("live_view")
        this.drawn = [this.view.start, this.view.end]
        this.stream = this.named("live_stream")
        this.now = 0
    }

    in_view() {
        return [this.view.start, this.view.end]
    }

    columns() {
        const width = Math.round(this.stream.inner_width)
        return Math.min(MOST_COLUMNS, Math.max(FEWEST_COLUMNS, width || 0))
    }

    // Calls back when the reader has moved the view, and not when an answer has.
    when_moved(moved) {
        this.view.change.connect(() => {
            const [from, to] = this.drawn
            if (this.view.start !== from || this.view.end !== to) moved()
        })
    }

    zoom(factor) {
        const [from, to] = this.in_view()
        const middle = (from + to) / 2, half = (to - from) * factor / 2
        this.set_view(Math.max(0, middle - half), Math.min(Math.max(this.now, to), middle + half))
    }

    move(share) {
        const [from, to] = this.in_view()
        const by = Math.max(-from, Math.min((to - from) * share, Math.max(0, this.now - to)))
        this.set_view(from + by, to + by)
    }

    set_view(start, end) {
        if (end > start) this.view.setv({start, end})
    }

    draw(answer) {
        this.now = answer.now
        this.drawn = answer.view
        this.set_view(...answer.view)
        this.draw_stream(answer)
        this.draw_resources(answer)
        const overview = this.named("live_overview_lines")
        overview.data = {time: answer.overview.time, cpu: answer.overview.cpu}
        this.named("live_all").setv({start: 0, end: Math.max(1, answer.now)})
        this.named("live_overview_height").setv({end: top_of(answer.overview.cpu, 100)})
    }

    draw_stream({stream, view}) {
        const count = Math.max(1, stream.lanes.length)
        this.stream.height = Math.min(TALLEST, Math.max(3 * LANE, count * LANE)) + AXES
        this.stream.y_range.setv({start: 0, end: count})
        const ticks = stream.lanes.map((_, lane) => count - lane - 0.5)
        this.named("live_lanes").ticks = ticks
        this.stream.left[0].major_label_overrides =
            new Map(ticks.map((tick, lane) => [tick, stream.lanes[lane]]))
        const pixels = (this.stream.height - AXES) / count
        const {tasks, running, stripes} = rectangles(stream, view[0], count, pixels)
        this.named("live_tasks").data = tasks
        this.named("live_stripes").data = stripes
        this.named("live_running").data = running
        this.named("live_images").data = images(stream, view, count)
    }

    draw_resources({resources, limits}) {
        const {time, cpu, others, memory} = resources
        this.named("live_lines").data = {time, cpu, others, memory}
        this.named("live_memory_lines").data = {time, memory}
        this.named("live_cpu_limit").setv({location: limits.cpu, visible: limits.cpu > 0})
        this.named("live_cpu").y_range.setv({start: 0, end: top_of(cpu, SPARE * limits.cpu || 100)})
        // On a machine with much memory, a line up to its limit would be flat.
        const peak = Math.max(...memory, LEAST_MEMORY)
        const limit = limits.memory > 0 && limits.memory < FAR * peak ? limits.memory : 0
        const line = this.named("live_memory_limit")
        line.visible = limit > 0
        line.location = limit
        this.named("live_memory").y_range.setv({start: 0, end: SPARE * Math.max(peak, limit)})
    }
}

function top_of(values, least) {
    return Math.max(least, SPARE * Math.max(0, ...values))
}
