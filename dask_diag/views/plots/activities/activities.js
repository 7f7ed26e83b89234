// Lays the bars out for the functions and the unit that are chosen: what activity_bars.py does for
// the page as it opens, in the same order and with the same names.

const {cells, cpu, functions, unlisted, workers, activities, most_bars} = numbers
const unit = +unit_select.value
const chosen = new Set(function_list.active)
const all = chosen.size == functions.length
const free = functions.length

function sums_by(by, groups) {
    const sums = groups.map(() => new Float64Array(activities.length))
    for (let i = 0; i < cells.value.length; i++) {
        if (cells.unit[i] != unit) continue
        const of_free_worker = cells.function[i] == free
        if (of_free_worker ? !all || by == "function" : !chosen.has(cells.function[i])) continue
        sums[cells[by][i]][cells.activity[i]] += cells.value[i]
    }
    return sums
}

function total_of(values) {
    return values.reduce((so_far, value) => so_far + value, 0)
}

function bars_by(by, groups, is_last) {
    const bars = sums_by(by, groups)
        .map((values, place) => ({name: groups[place], values, members: [place]}))
        .filter((bar) => bar.values.some((value) => value != 0))
    if (by != "worker") {
        bars.sort((a, b) => is_last(a.members[0]) - is_last(b.members[0])
            || total_of(b.values) - total_of(a.values))
    }
    if (bars.length <= most_bars) return bars
    const rest = bars.splice(most_bars - 1)
    const members = rest.flatMap((bar) => bar.members)
    const and_unlisted = by == "function" && members.includes(functions.length - 1)
    const count = rest.length + (and_unlisted ? unlisted : 0)
    const many = by == "activity" ? "activities" : by + "s"
    bars.push({
        name: `(${count.toLocaleString("en")} more ${many})`,
        values: activities.map((_, a) => total_of(rest.map((bar) => bar.values[a]))),
        members,
    })
    return bars
}

function size_of(values) {
    return values.reduce((so_far, value) => so_far + Math.abs(value), 0)
}

function stacked(bars) {
    const pieces = {y: [], left: [], right: [], activity: [], name: [], value: [], of_bar: [], of_all: []}
    const rows = {y: [], name: [], total: [], left: [], right: [], of_all: [], members: []}
    const whole = total_of(bars.map((bar) => size_of(bar.values)))
    bars.forEach(({name, values, members}, y) => {
        const [total, size] = [total_of(values), size_of(values)]
        const ends = [0, 0]
        values.forEach((value, activity) => {
            if (value == 0) return
            const side = value < 0 ? 1 : 0
            const [start, end] = [ends[side], ends[side] += value]
            append(pieces, {
                y, left: Math.min(start, end), right: Math.max(start, end), activity, name, value,
                of_bar: value / size, of_all: value / whole,
            })
        })
        const [right, left] = ends
        append(rows, {y, name, total, left, right, of_all: total / whole, members})
    })
    return fitted({pieces, rows})
}

// Draws a bar that stands for many no longer than the others, which are to be compared.
function fitted(bars) {
    const {y, name, members, left, right} = bars.rows
    const last = y.length - 1
    if (last < 1 || members[last].length < 2 && name[last] != unused_workers) return bars
    const own = right[last] - left[last]
    const others = Math.max(...right.slice(0, last)) - Math.min(...left.slice(0, last))
    if (own <= others) return bars
    const marked = `${name[last]} not to scale`
    for (const columns of [bars.rows, bars.pieces])
        columns.y.forEach((of, place) => {
            if (of != last) return
            columns.left[place] *= others / own
            columns.right[place] *= others / own
            columns.name[place] = marked
        })
    return bars
}

function append(columns, row) {
    for (const [name, cell] of Object.entries(row)) columns[name].push(cell)
}

function of_cpu({y, name, members}) {
    const pieces = {y: [], left: [], right: [], kind: [], name: [], value: []}
    const share = members.map((places, bar) => {
        const [on_cpu, off_cpu] = [cpu.cpu, cpu.noncpu]
            .map((seconds) => Math.max(0, total_of(places.map((place) => seconds[place]))))
        const all_seconds = on_cpu + off_cpu
        if (!all_seconds) return NaN
        const part = on_cpu / all_seconds
        const shared = {y: y[bar], name: name[bar]}
        append(pieces, {...shared, left: 0, right: part, kind: 0, value: on_cpu})
        append(pieces, {...shared, left: part, right: 1, kind: 1, value: off_cpu})
        return part
    })
    return {pieces, rows: {y, name, share}}
}

function draw(picture, {pieces, rows}) {
    picture.pieces.data = pieces
    picture.rows.data = rows
    const count = rows.y.length
    picture.axis.ticker.ticks = rows.y
    picture.y_range.setv({start: Math.max(count, 1) - 0.4, end: -0.6})
    picture.figure.height = picture.around + picture.row * Math.max(count, 1)
    if (rows.right) {
        const longest = Math.max(0, ...rows.right)
        const least = Math.min(0, ...rows.left)
        const end = longest + (longest - least) * picture.room || 1
        picture.x_range.setv({start: least, end})
        picture.figure.below[0].axis_label = numbers.units[unit]
    }
    // The labels are read from the rows when the axis is laid out.
    picture.axis.change.emit()
}

const by_function = stacked(bars_by(
    "function", functions, (place) => +(unlisted > 0 && place == functions.length - 1),
))
const by_activity = stacked(bars_by(
    "activity",
    activities.map(([name, is_free]) => is_free ? `${name} (no task ran)` : name),
    (activity) => +activities[activity][1],
))
draw(pictures.by_function, by_function)
draw(pictures.of_cpu, of_cpu(by_function.rows))
draw(pictures.by_activity, by_activity)
draw(pictures.by_worker, stacked(bars_by("worker", workers)))
heading.text = all ? heading_of_all
    : `${heading_of_all}: tasks of ${chosen.size} of ${functions.length} functions`
const there = new Set([...by_activity.pieces.activity])
legend.text = legend_items.filter((_, activity) => there.has(activity)).join("")
    || nothing
