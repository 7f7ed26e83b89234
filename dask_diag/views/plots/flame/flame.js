// What a flame graph does in a page: adds up, lays out, draws, and answers what is clicked.
//
// It runs as the body of a function at each event; cb_data.act says which. Nodes stand before what
// they called and the callees of a node are in order, so a subtree is a range of positions. What is
// kept between events is in `state`.

const PIXELS_WORTH_DRAWING = 0.5
const PIXELS_WORTH_A_LABEL = 22
const ROWS_SHOWN_ABOVE = 3
const FOUND = "#d6007a"

const all = nodes.data
const state = drawn.flame_state ??= begin()

function begin() {
    const count = all.end.length
    return {
        base: 0, focus: 0, range: null, query: "", found: null, drawing: false,
        own: new Float64Array(count), total: new Float64Array(count),
        left: new Float64Array(count), samples: 0, added: false, deeper: false,
        pen: document.createElement("canvas").getContext("2d"),
    }
}

function share_in_range(start, stop) {
    if (state.range == null) return 1
    const [from, to] = state.range
    if (stop <= start) return start >= from && start <= to ? 1 : 0
    return Math.max(0, Math.min(stop, to) - Math.max(start, from)) / (stop - start)
}

function add_up() {
    const {own, total, left} = state
    const {cycle, node, wall, cpu, waiting, count} = cells.data
    const {start, stop} = cycles.data
    const shares = start.map((from, i) => share_in_range(from, stop[i]))
    const measured = [wall, cpu, waiting][mode.active]
    own.fill(0)
    state.samples = 0
    for (let i = 0; i < node.length; i++) {
        const share = shares[cycle[i]]
        if (share == 0) continue
        own[node[i]] += share * Math.max(0, measured[i])
        if (is_below(node[i], state.base)) state.samples += share * count[i]
    }
    total.set(own)
    for (let i = total.length - 1; i > 0; i--) total[all.parent[i]] += total[i]
    const free = new Float64Array(total.length)
    free[0] = left[0] = 0
    for (let i = 1; i < total.length; i++) {
        const parent = all.parent[i]
        free[i] = left[i] = free[parent]
        free[parent] += total[i]
    }
    state.added = true
}

function is_below(node, top) {
    return node >= top && node < all.end[top]
}

function seconds(value) {
    if (value == 0) return "0 s"
    if (value >= 100) return value.toFixed(0) + " s"
    if (value >= 1) return +value.toPrecision(3) + " s"
    if (value >= 1e-3) return +(1e3 * value).toPrecision(3) + " ms"
    return +(1e6 * value).toPrecision(2) + " µs"
}

function percent(part, whole) {
    return whole > 0 ? (100 * part / whole).toFixed(1) + "%" : "0%"
}

function name_of(i) {
    return texts.names[all.name[i]]
}

function place_of(i) {
    const file = texts.files[all.file[i]]
    return all.first[i] > 0 ? file + ":" + all.first[i] : file
}

function told_of_place(i) {
    if (all.depth[i] == 0) return "everything that was sampled"
    if (all.depth[i] == 1) return "tasks of this function"
    return place_of(i) || "no source"
}

function fitted(text, pixels) {
    const {pen} = state
    const width = pen.measureText(text).width
    if (width <= pixels) return text
    let kept = Math.floor(text.length * pixels / width)
    while (kept > 1 && pen.measureText(text.slice(0, kept) + "…").width > pixels) kept--
    return kept > 1 ? text.slice(0, kept) + "…" : ""
}

function words_for(i, pixels) {
    const name = name_of(i), place = all.depth[i] > 1 ? place_of(i) : ""
    const whole = place ? `${name}  (${place})` : name
    return state.pen.measureText(whole).width <= pixels ? whole : fitted(name, pixels)
}

function draw() {
    state.drawing = false
    const {base, own, total, left, found} = state
    const x0 = graph.x_range.start, x1 = graph.x_range.end
    const scale = graph.inner_width / (x1 - x0)
    const narrowest = PIXELS_WORTH_DRAWING / scale
    const quads = {left: [], right: [], top: [], bottom: [], fill: [], alpha: [],
                   name: [], place: [], own: [], total: []}
    const labels = {x: [], y: [], text: [], color: [], alpha: []}
    // A page that may be dark says in which colour one writes on its paper.
    const faint = getComputedStyle(document.documentElement).getPropertyValue("--faint").trim()
        || "#555555"
    let narrow = null, deepest = 0
    state.pen.font = "11px helvetica"

    function put(from, to, row, fill, alpha, name, place, own_text, total_text) {
        quads.left.push(from); quads.right.push(to)
        quads.top.push(row); quads.bottom.push(row + 1)
        quads.fill.push(fill); quads.alpha.push(alpha)
        quads.name.push(name); quads.place.push(place)
        quads.own.push(own_text); quads.total.push(total_text)
    }
    function put_narrow() {
        if (narrow != null && narrow.to - narrow.from >= narrowest) {
            const sum = narrow.to - narrow.from
            put(narrow.from, narrow.to, narrow.row, "#e9e9e9", 1, `${narrow.count} calls`,
                "too narrow to be drawn: click their caller to see them", "",
                `${seconds(sum)}, ${percent(sum, total[base])}`)
        }
        narrow = null
    }
    function put_node(i, row) {
        const is_found = found != null && found[i]
        const alpha = found == null || is_found ? 1 : 0.3
        const of_caller = i == base ? "" : ` (${percent(total[i], total[all.parent[i]])} of caller)`
        put(left[i], left[i] + total[i], row, is_found ? FOUND : texts.colors[all.color[i]], alpha,
            name_of(i), told_of_place(i), `${seconds(own[i])}, ${percent(own[i], total[base])}`,
            `${seconds(total[i])}, ${percent(total[i], total[base])}${of_caller}`)
        const from = Math.max(left[i], x0), to = Math.min(left[i] + total[i], x1)
        const pixels = (to - from) * scale
        if (pixels < PIXELS_WORTH_A_LABEL) return
        const text = words_for(i, pixels - 7)
        if (text == "") return
        labels.x.push(from); labels.y.push(row + 0.5); labels.text.push(text)
        labels.color.push(is_found ? "#ffffff" : alpha < 1 ? faint : texts.ink[all.color[i]])
        labels.alpha.push(1)
    }

    for (let i = base; i < all.end[base];) {
        const row = all.depth[i] - all.depth[base]
        const to = left[i] + total[i]
        if (total[i] <= 0 || to <= x0 || left[i] >= x1) {
            i = all.end[i]
        } else if (total[i] < narrowest) {
            if (narrow == null || narrow.parent != all.parent[i]) {
                put_narrow()
                narrow = {parent: all.parent[i], row, from: left[i], to, count: 0}
            }
            narrow.to = to
            narrow.count += all.end[i] - i
            i = all.end[i]
        } else {
            put_narrow()
            put_node(i, row)
            deepest = Math.max(deepest, row)
            i++
        }
    }
    put_narrow()
    drawn.data = quads
    words.data = labels
    tell_of_depth(deepest >= graph.y_range.start)
}

function draw_soon() {
    if (state.drawing) return
    state.drawing = true
    requestAnimationFrame(draw)
}

function look_at(i) {
    state.focus = i
    const {left, total, base} = state
    graph.x_range.setv({start: left[i], end: left[i] + (total[i] || 1)})
    const rows = graph.y_range.start - graph.y_range.end
    const row = all.depth[i] - all.depth[base]
    const top = Math.max(0, row < rows / 2 ? 0 : row - ROWS_SHOWN_ABOVE)
    graph.y_range.setv({end: top, start: top + rows})
    draw_soon()
}

function draw_timeline() {
    const {left, right, node, cpu, waiting, unknown} = spans.data
    const rows = {left: [], right: [], cpu: [], waiting: [], either: []}
    let last = -1, highest = 0
    for (let i = 0; i < node.length; i++) {
        if (state.base != 0 && node[i] != state.base) continue
        if (last < 0 || rows.left[last] != left[i]) {
            last++
            rows.left.push(left[i]); rows.right.push(right[i])
            rows.cpu.push(0); rows.waiting.push(0); rows.either.push(0)
        }
        rows.cpu[last] += cpu[i]
        rows.waiting[last] += cpu[i] + waiting[i]
        rows.either[last] += cpu[i] + waiting[i] + unknown[i]
        highest = Math.max(highest, rows.either[last])
    }
    bars.data = rows
    timeline.y_range.setv({start: 0, end: 1.08 * highest || 1})
}

function find() {
    const query = search.value_input.trim().toLowerCase()
    if (query == "") {
        state.found = null
        return
    }
    const names = texts.names.map((name) => name.toLowerCase().includes(query))
    const files = texts.files.map((file) => file.toLowerCase().includes(query))
    state.found = all.name.map((name, i) =>
        all.depth[i] > 0 && (names[name] || (all.depth[i] > 1 && files[all.file[i]])) ? 1 : 0)
}

function total_found() {
    const {base, found, total} = state
    let sum = 0
    for (let i = base; i < all.end[base];) {
        sum += found[i] ? total[i] : 0
        i = found[i] ? all.end[i] : i + 1
    }
    return sum
}

function tell() {
    const {base, range, total, found, samples} = state
    const what = ["", " of CPU", " of waiting"][mode.active]
    const parts = [`<b>${seconds(total[base])}</b>${what} in ${Math.round(samples).toLocaleString()} samples`]
    const lost = missing.filter((i) => is_below(i, base)).reduce((sum, i) => sum + total[i], 0)
    if (lost > 0) parts.push(`${percent(lost, total[base])} could not be sampled`)
    if (range != null) parts.push(`from ${+range[0].toPrecision(3)} s to ${+range[1].toPrecision(3)} s`)
    if (found != null) {
        const sum = total_found()
        parts.push(`<b style="background: ${FOUND}; color: #ffffff; padding: 0 4px">found: ${seconds(sum)}, ${percent(sum, total[base])}</b>`)
    }
    if (state.deeper) parts.push("deeper calls: turn the wheel, or drag")
    if (total[base] == 0) parts.push("nothing to draw")
    status.text = parts.join(" · ")
}

function tell_of_depth(deeper) {
    if (state.deeper == deeper) return
    state.deeper = deeper
    tell()
}

function show_all_anew() {
    add_up()
    if (!is_below(state.focus, state.base) || state.total[state.focus] == 0) state.focus = state.base
    look_at(state.focus)
    tell()
}

function node_at(x, y) {
    const {base, left, total} = state
    const depth = all.depth[base] + Math.floor(y)
    for (let i = base; i < all.end[base];) {
        const inside = x >= left[i] && x < left[i] + total[i]
        if (inside && all.depth[i] == depth) return i
        i = inside ? i + 1 : all.end[i]
    }
    return -1
}

const acts = {
    resize() {
        if (state.added) {
            draw_soon()
        } else {
            show_all_anew()
            draw_timeline()
        }
    },
    move() {
        if (state.added) draw_soon()
    },
    zoom() {
        const i = node_at(cb_obj.x, cb_obj.y)
        if (i >= 0) look_at(i)
    },
    go_up() {
        if (state.focus != state.base) look_at(all.parent[state.focus])
    },
    choose() {
        state.base = state.focus = +choice.value
        show_all_anew()
        draw_timeline()
    },
    switch_mode() {
        show_all_anew()
    },
    find() {
        find()
        draw_soon()
        tell()
    },
    choose_range() {
        const {x0, x1} = cb_obj.geometry
        if (!cb_obj.final || !(x1 > x0)) return
        state.range = [x0, x1]
        box.setv({left: x0, right: x1, visible: true})
        show_all_anew()
    },
    forget_range() {
        if (state.range == null) return
        state.range = null
        box.visible = false
        show_all_anew()
    },
    reset() {
        state.range = state.found = null
        box.visible = false
        state.base = state.focus = 0
        choice.value = "0"
        mode.active = 0
        search.setv({value: "", value_input: ""})
        show_all_anew()
        draw_timeline()
    },
}

acts[cb_data.act]()
