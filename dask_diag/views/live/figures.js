// The figures of a live page: what an answer says, put into bokeh's sources. Tasks are drawn as in a report.

import {percent, seconds} from "../formatting.js"
import {unpacked} from "../plots/binary_columns.js"
import {emptied} from "../plots/columns.js"
import {unpacked_tasks} from "../plots/tasks/decode.js"
import {rectangles_of} from "../plots/tasks/rectangles.js"
import {image_columns} from "../plots/tasks/tasks.js"

const LANE = 24                     // pixels
const TALLEST = 420
const AXES = 14                     // pixels of a figure that lanes have not
const PARTS_OF_A_PIXEL = 4
const FEWEST_COLUMNS = 100, MOST_COLUMNS = 2000
const SPARE = 1.08                  // of the largest value, that it does not touch the edge
const LEAST_MEMORY = 1e6            // bytes, of an axis before anything is known
const FAR = 2                       // a limit that is more times higher is not drawn

export class Figures {
    // `looks` are numbers and colors of the plot of tasks, as tasks.js has them.
    constructor(bokeh, looks) {
        this.looks = looks
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
        const {lane_height, full} = this.looks
        const count = Math.max(1, stream.lanes.length)
        this.stream.height = Math.min(TALLEST, Math.max(3 * LANE, count * LANE)) + AXES
        const gap = lane_height - full
        this.stream.y_range.setv({start: count * lane_height - gap / 2, end: -gap / 2})
        const ticks = stream.lanes.map((_, lane) => lane * lane_height + full / 2)
        this.named("live_lanes").ticks = ticks
        this.stream.left[0].major_label_overrides =
            new Map(ticks.map((tick, lane) => [tick, stream.lanes[lane]]))
        const [pixels, tasks, stripes, running] =
            ["live_images", "live_tasks", "live_stripes", "live_running"].map(this.named)
        running.data = this.rectangles(stream.running, stream.functions, view)
        if (stream.columns === 0) {
            tasks.data = this.rectangles(stream.ended, stream.functions, view)
            pixels.data = emptied(pixels.data)
        } else {
            tasks.data = emptied(tasks.data)
            pixels.data = this.images(stream, view)
        }
        stripes.data = this.stripes(tasks.data, count)
    }

    rectangles(tasks, functions, [from, to]) {
        const columns = rectangles_of(tasks, all_of(tasks), -Infinity, () => "", this.looks)
        const lasted = columns.left.map((left, i) => columns.right[i] - left)
        columns.lasted = lasted.map((time, i) =>
            isNaN(columns.cpu[i]) ? `${seconds(time)} so far` : seconds(time))
        columns.share = lasted.map((time, i) =>
            isNaN(columns.cpu[i]) ? "not known yet" : percent(time > 0 ? columns.cpu[i] / time : 1))
        columns.name = columns.function.map((code) => functions[code][0])
        columns.color = columns.function.map((code) => functions[code][1])
        columns.left = columns.left.map((left) => from + left)
        // The shortest are seen, too.
        const narrowest = (to - from) / this.columns() / PARTS_OF_A_PIXEL
        columns.right = columns.left.map((left, i) => left + Math.max(lasted[i], narrowest))
        return columns
    }

    // Stripes take a browser longer than all else: none are drawn where they would be less than half of a
    // pixel.
    stripes({left, right, top, off_cpu}, lanes) {
        const pixel = lanes * this.looks.lane_height / (this.stream.height - AXES)
        const rows = off_cpu.flatMap((height, i) => height >= pixel / 2 ? [i] : [])
        const chosen = (column) => rows.map((i) => column[i])
        return {left: chosen(left), right: chosen(right), top: chosen(top), off_cpu: chosen(off_cpu)}
    }

    images({ended, columns, tick, functions}, [from, to]) {
        const looks = {...this.looks, plot: this.stream, colors: functions.map(([, color]) => color)}
        const drawn = image_columns(ended, all_of(ended), 0, (to - from) / tick, columns, looks)
        return {...drawn, x: drawn.x.map(() => from)}
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

// The tasks of an answer as they are drawn.
export async function unpack(stream) {
    for (const name of ["ended", "running"])
        stream[name] = unpacked_tasks(await unpacked(stream[name]), stream.tick)
}

function all_of({lanes}) {
    return lanes.map(({first, last}) => [first, last])
}
