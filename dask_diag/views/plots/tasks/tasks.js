// Many tasks in a page: draws what is in each pixel, or each task where few are in view.
//
// It runs once, when the plot has its place. Times are in ticks; tasks stand lane by lane, in order
// of time; see task_columns.py for what the columns are.

const CPU_BELOW = 1024          // ticks: longer tasks' CPU time comes without its last digits
const ROWS = 12                 // of a lane's image: so many steps of a share of CPU are told apart
const FOOT = 0.5                // at least, of the lowest row where any task ran
const NOT_CPU = 0.35            // how strong the colour is beside the CPU time
const [NUMBER, BETWEEN] = ["\x1f", "\x1e"]

function tell(text) {
    status.text = wrapped(text, plot)
}

function made_of(columns) {
    const {count, gap, length, outcome, rest} = columns
    const total = gap.length
    const start = new Float64Array(total), stop = new Float64Array(total)
    const reach = new Float64Array(total), cpu = new Float64Array(total)
    const lanes = []
    let i = 0
    for (const tasks of count) {
        const first = i
        for (let before = 0, furthest = -Infinity; i < first + tasks; i++) {
            start[i] = before + gap[i]
            before = stop[i] = start[i] + length[i]
            reach[i] = furthest = Math.max(furthest, stop[i])
            let scale = 1
            for (let left = length[i]; left >= CPU_BELOW; left /= 2) scale *= 2
            cpu[i] = length[i] - rest[i] * scale
        }
        lanes.push({first, last: i})
    }
    for (const place of columns.unknown) cpu[place] = NaN
    const special = marked.map((codes) => {
        const places = []
        for (let place = 0; place < total; place++)
            if (codes.includes(outcome[place])) places.push(place)
        return places
    })
    const lane = new Int32Array(total)
    lanes.forEach(({first, last}, n) => lane.fill(n, first, last))
    return {total, lanes, lane, start, stop, reach, cpu, special, ...columns}
}

function keys_of(columns, {function: groups}) {
    const patterns = columns.patterns.split(BETWEEN).map((text) => text.split(NUMBER))
    const pattern = Int32Array.from(columns.pattern), latest = []
    for (let i = 0; i < pattern.length; i++)
        pattern[i] = latest[groups[i]] = (latest[groups[i]] ?? 0) + pattern[i]
    const first = new Int32Array(pattern.length + 1)
    for (let i = 0; i < pattern.length; i++)
        first[i + 1] = first[i] + patterns[pattern[i]].length - 1
    const numbers = new Float64Array(first[pattern.length])
    for (let slot = 0; columns[`numbers-${slot}`]; slot++) {
        const steps = columns[`numbers-${slot}`], sums = new Float64Array(patterns.length)
        for (let i = 0, at = 0; i < pattern.length; i++)
            if (first[i] + slot < first[i + 1])
                numbers[first[i] + slot] = sums[pattern[i]] += steps[at++]
    }
    return (i) => shortened(patterns[pattern[i]].reduce(
        (text, piece, n) => text + numbers[first[i] + n - 1] + piece))
}

function shortened(text) {
    const all = [...text]
    if (all.length <= key_size) return text
    const tail = Math.floor((key_size - 1) / 3)
    return all.slice(0, key_size - 1 - tail).join("") + "…" + all.slice(all.length - tail).join("")
}

// Of each lane the positions from the first to behind the last task that is in view.
function in_view(tasks, from, to) {
    return tasks.lanes.map(({first, last}) =>
        [first_above(tasks.reach, from, first, last), first_above(tasks.start, to, first, last)])
}

function draw_rectangles(tasks, spans, from, key_of) {
    const data = {left: [], right: [], top: [], unfilled: [], function: [], outcome: [], cpu: [],
                  key: []}
    spans.forEach(([first, last], lane) => {
        for (let i = first; i < last; i++) {
            if (tasks.stop[i] < from) continue
            const cpu = tasks.cpu[i], length = tasks.length[i]
            const share = length > 0 && cpu > 0 ? Math.min(1, cpu / length) : 0
            data.left.push(tasks.start[i] * tick)
            data.right.push(tasks.stop[i] * tick)
            data.top.push(lane * lane_height)
            data.unfilled.push(Math.round((1 - share) * full))
            data.function.push(tasks.function[i])
            data.outcome.push(tasks.outcome[i])
            data.cpu.push(cpu * tick)
            data.key.push(key_of(i))
        }
    })
    rectangles.data = data
    return data.left.length
}

const inks = colors.map((color) => {
    const channels = parseInt(color.slice(1, 7), 16)
    return (channels >> 16) | (channels & 0xff00) | (channels & 0xff) << 16
})

function image_of_lane(tasks, [begin, end], from, per_pixel, sums) {
    const {busy, cpu, longest, of_function} = sums, width = busy.length
    for (const column of [busy, cpu, longest, of_function]) column.fill(0)
    const most = new Int32Array(width).fill(-1)
    const add = (pixel, part, share, kind) => {
        if (pixel < 0 || pixel >= width) return
        busy[pixel] += part
        cpu[pixel] += part * share
        const time = of_function[pixel * colors.length + kind] += part
        if (most[pixel] < 0 || time > longest[pixel]) {
            longest[pixel] = time
            most[pixel] = kind
        }
    }
    for (let i = begin; i < end; i++) {
        const left = (tasks.start[i] - from) / per_pixel, right = (tasks.stop[i] - from) / per_pixel
        if (right < 0) continue
        const kind = tasks.function[i], length = tasks.length[i]
        const share = length > 0 && tasks.cpu[i] > 0 ? Math.min(1, tasks.cpu[i] / length) : 0
        const first = Math.max(0, Math.floor(left)), last = Math.min(width - 1, Math.floor(right))
        for (let pixel = first; pixel <= last; pixel++)
            add(pixel, Math.min(right, pixel + 1) - Math.max(left, pixel), share, kind)
    }
    const image = new Uint32Array(ROWS * width)
    for (let pixel = 0; pixel < width; pixel++) {
        if (most[pixel] < 0) continue
        const strength = Math.min(1, busy[pixel])
        const filled = busy[pixel] > 0 ? Math.round(ROWS * cpu[pixel] / busy[pixel]) : 0
        for (let row = 0; row < ROWS; row++) {
            // As strong as the pixel is busy, so that hardly busy is hardly coloured; a task that is
            // alone there would not be seen, but for its foot.
            const share = strength * (row >= ROWS - filled ? 1 : NOT_CPU)
            const alpha = Math.round(255 * (row == ROWS - 1 ? Math.max(FOOT, share) : share))
            image[row * width + pixel] = (inks[most[pixel]] | alpha << 24) >>> 0
        }
    }
    return Object.assign(image, {shape: [ROWS, width], dimension: 2})
}

function draw_pixels(tasks, spans, from, to) {
    const width = Math.max(1, Math.round(plot.inner_width)), per_pixel = (to - from) / width
    const sums = {busy: new Float64Array(width), cpu: new Float64Array(width),
                  longest: new Float64Array(width),
                  of_function: new Float64Array(width * colors.length)}
    pixels.data = {
        image: spans.map((span) => image_of_lane(tasks, span, from, per_pixel, sums)),
        x: spans.map(() => from * tick),
        y: spans.map((_, lane) => lane * lane_height),
        width: spans.map(() => (to - from) * tick),
    }
}

function percent(share) {
    return `${+(100 * share).toPrecision(2)}%`
}

// What the hover tells of the pixel at a time and a height: tasks, and the functions' shares of time.
function told_of_pixel(tasks, x, y) {
    const span = plot.x_range.end - plot.x_range.start
    const per_pixel = span / Math.max(1, plot.inner_width)
    const pixel = Math.floor((x - plot.x_range.start) / per_pixel)
    const from = (plot.x_range.start + pixel * per_pixel) / tick, to = from + per_pixel / tick
    const bounds = tasks.lanes[Math.floor(y / lane_height)]
    if (bounds == null) return ""
    const [first, last] = in_view({...tasks, lanes: [bounds]}, from, to)[0], times = new Map()
    let count = 0
    for (let i = first; i < last; i++) {
        if (tasks.stop[i] < from) continue
        count++
        const time = Math.min(to, tasks.stop[i]) - Math.max(from, tasks.start[i])
        times.set(tasks.function[i], (times.get(tasks.function[i]) ?? 0) + time)
    }
    const busy = [...times.values()].reduce((sum, time) => sum + time, 0) / (to - from)
    const shares = [...times].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([kind, time]) =>
        `${functions[kind]} ${percent(time / (to - from))}`)
    const more = times.size > 4 ? `, ${times.size - 4} more functions` : ""
    return `${count.toLocaleString("en")} tasks: ${shares.join(", ")}${more} of the time, ${percent(busy)} in all`
}

// Those that failed or were not finished; as one where several meet in a pixel.
function draw_marks(tasks, from, to) {
    const per_pixel = (to - from) / Math.max(1, plot.inner_width)
    tasks.special.forEach((places, kind) => {
        const data = {left: [], right: [], top: []}
        let latest = null
        for (const i of places) {
            if (tasks.stop[i] < from || tasks.start[i] > to) continue
            const pixel = Math.floor((tasks.start[i] - from) / per_pixel)
            const top = tasks.lane[i] * lane_height
            if (latest != null && latest.top == top && latest.pixel == pixel
                && tasks.stop[i] - tasks.start[i] < per_pixel) continue
            latest = {pixel, top}
            data.left.push(tasks.start[i] * tick)
            data.right.push(tasks.stop[i] * tick)
            data.top.push(top)
        }
        marks[kind].data = data
    })
}

function unit_of_tick() {
    const [unit, size] = tick >= 0.99e-6 ? ["µs", 1e-6] : ["ns", 1e-9]
    return `${Math.round(tick / size)} ${unit}`
}

const left_out = `${Math.round(size_of_keys / 1e6)} MB of keys are left out of this page`
const precision = `times to ${unit_of_tick()}, CPU times to that or 0.2%`
    + (packed_keys == null ? `; ${left_out}` : "")

async function start() {
    const tasks = made_of(await unpacked(packed_tasks))
    pixels.told_at = (x, y) => told_of_pixel(tasks, x, y)
    let key_of = packed_keys == null ? () => `(${left_out})` : null
    draw_when_moved(plot, async () => {
        const from = plot.x_range.start / tick, to = plot.x_range.end / tick
        const spans = in_view(tasks, from, to)
        const count = spans.reduce((sum, [first, last]) => sum + Math.max(0, last - first), 0)
        draw_marks(tasks, from, to)
        if (count > most) {
            rectangles.data = Object.fromEntries(Object.keys(rectangles.data).map((n) => [n, []]))
            draw_pixels(tasks, spans, from, to)
            tell(`${count.toLocaleString("en")} tasks in view, drawn by pixel: the colour of the `
                + "function with most time there, as strong as the worker was busy; the line below is "
                + `where any task ran. Zoom in to see each task, from ${most.toLocaleString("en")} on: ${precision}.`)
            return
        }
        key_of ??= keys_of(await unpacked(packed_keys), tasks)
        pixels.data = {image: [], x: [], y: [], width: []}
        const drawn = draw_rectangles(tasks, spans, from, key_of)
        tell(`${drawn.toLocaleString("en")} tasks in view, each drawn. In this page: ${precision}.`)
    }, fail)
}

function fail(error) {
    tell(`The tasks cannot be drawn: ${error.message}`)
}

if (!pixels.begun) {
    pixels.begun = true
    start().catch(fail)
}
