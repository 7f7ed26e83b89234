// Lays the bars of the activities out, for the functions and the unit that are chosen.
//
// Here are only functions of numbers; activities.py says what these are, activities.js draws the bars.

import {count, percent, quantity, seconds, short_quantity} from "../../formatting.js"
import {append, columns_of} from "../columns.js"

const LONGEST_LABEL = 34
const KINDS = ["CPU", "off-CPU"]

// Of each picture the pieces that bars are made of, and the row of each bar.
export function lay_out(numbers, chosen, unit) {
    const {functions, unlisted, activities, workers, most_bars} = numbers
    // Functions that are not listed are not one function to be compared with others.
    const is_unlisted = (index) => Number(unlisted > 0 && index === functions.length - 1)
    const is_of_free_workers = (index) => Number(activities[index][1])
    const sums = (by, names) => sums_by(numbers, by, names, new Set(chosen), unit)
    const by_function = sorted(sums("function", functions), is_unlisted)
    const by_activity = sorted(sums("activity", activities.map(([name]) => name)), is_of_free_workers)
    const by_worker = sums("worker", workers)
    const picture = (bars, plural, count_members) =>
        stacked(merged(bars, most_bars, plural, count_members), numbers, unit)
    const pictures = {
        by_function: picture(by_function, "functions", unlisted_in(numbers)),
        by_activity: picture(by_activity, "activities"),
        by_worker: picture(by_worker, "workers"),
    }
    const {rows} = pictures.by_activity
    rows.text = rows.text.map((text, i) => `${text}, ${percent(rows.share_of_all[i])}`)
    return {...pictures, of_cpu: shares_of_cpu(numbers.cpu, pictures.by_function.rows)}
}

// For each name what each activity had, of the functions that are chosen; those of zero left out.
//
// The function after the last one is that of free workers: with all functions, they are chosen.
function sums_by({cells, functions, activities}, by, names, chosen, unit) {
    const free = functions.length
    const all = chosen.size === functions.length
    const sums = names.map(() => new Array(activities.length).fill(0))
    for (let i = 0; i < cells.value.length; i++) {
        if (cells.unit[i] !== unit) continue
        const is_chosen = cells.function[i] === free ? all && by !== "function"
            : chosen.has(cells.function[i])
        if (is_chosen) sums[cells[by][i]][cells.activity[i]] += cells.value[i]
    }
    return sums
        .map((values, index) => ({name: names[index], values, members: [index]}))
        .filter((bar) => bar.values.some((value) => value !== 0))
}

// The longest first, after them those that `comes_last` gives a one.
function sorted(bars, comes_last) {
    return bars.sort((a, b) => comes_last(a.members[0]) - comes_last(b.members[0])
        || total_of(b.values) - total_of(a.values))
}

// At most so many bars: those beyond are one, which says how many there are.
function merged(bars, most_bars, plural, count_members = (members) => members.length) {
    if (bars.length <= most_bars) return bars
    const others = bars.slice(most_bars - 1)
    const members = others.flatMap((bar) => bar.members)
    const values = others[0].values.map((_, activity) =>
        total_of(others.map((bar) => bar.values[activity])))
    const name = `(${count(count_members(members))} more ${plural})`
    return [...bars.slice(0, most_bars - 1), {name, values, members}]
}

// How many functions these are: the last one may be many that are not listed.
function unlisted_in({functions, unlisted}) {
    return (members) => members.length + (members.includes(functions.length - 1) ? unlisted : 0)
}

// Pieces one after the other, those below zero to the left of it.
function stacked(bars, {activities, units, unused_workers}, unit) {
    const pieces = columns_of("y", "left", "right", "activity", "name", "activity_name",
        "value", "text", "share")
    const rows = columns_of("y", "name", "label", "total", "left", "right", "share_of_all",
        "members", "text")
    const all = total_of(bars.map((bar) => size_of(bar.values)))
    bars.forEach(({name, values, members}, y) => {
        const [total, size] = [total_of(values), size_of(values)]
        const ends = [0, 0]
        values.forEach((value, activity) => {
            if (value === 0) return
            const side = value < 0 ? 1 : 0
            const [start, end] = [ends[side], ends[side] += value]
            append(pieces, {
                y, left: Math.min(start, end), right: Math.max(start, end), activity, name, value,
                activity_name: activities[activity][0], text: quantity(value, units[unit]),
                share: `${percent(value / size)} of this bar, ${percent(value / all)} of all`,
            })
        })
        append(rows, {
            y, name, total, left: ends[1], right: ends[0], share_of_all: total / all, members,
            label: "", text: short_quantity(total, units[unit]),
        })
    })
    fit_last_bar(pieces, rows, unused_workers)
    rows.label = rows.name.map(shortened)
    return {pieces, rows}
}

// Makes a bar that sums many up no longer than the others, which are to be compared.
function fit_last_bar(pieces, rows, unused_workers) {
    const {y, name, members, left, right} = rows
    const last = y.length - 1
    if (last < 1 || members[last].length < 2 && name[last] !== unused_workers) return
    const length = right[last] - left[last]
    const longest = Math.max(...right.slice(0, last)) - Math.min(...left.slice(0, last))
    if (length <= longest) return
    const marked = `${name[last]} not to scale`
    for (const columns of [rows, pieces])
        columns.y.forEach((row, i) => {
            if (row !== last) return
            columns.left[i] *= longest / length
            columns.right[i] *= longest / length
            columns.name[i] = marked
        })
}

// For each bar of functions, which share of its seconds was CPU time and which not.
function shares_of_cpu({cpu, noncpu}, {y, name, label, members}) {
    const pieces = columns_of("y", "left", "right", "kind", "name", "text")
    const shares = members.map((functions, bar) => {
        const [on_cpu, off_cpu] = [cpu, noncpu]
            .map((column) => Math.max(0, total_of(functions.map((index) => column[index]))))
        if (on_cpu + off_cpu === 0) return NaN
        const share = on_cpu / (on_cpu + off_cpu)
        for (const [kind, left, right, value] of [[0, 0, share, on_cpu], [1, share, 1, off_cpu]])
            append(pieces, {
                y: y[bar], name: name[bar], left, right, kind, text: `${KINDS[kind]}: ${seconds(value)}`,
            })
        return share
    })
    const text = shares.map((share) => isNaN(share) ? "unknown" : `${percent(share)} CPU`)
    return {pieces, rows: {y, name, label, share: shares, text}}
}

function shortened(name) {
    const letters = [...name]
    if (letters.length <= LONGEST_LABEL) return name
    return [...letters.slice(0, LONGEST_LABEL - 13), "…", ...letters.slice(-12)].join("")
}

function total_of(values) {
    return values.reduce((sum, value) => sum + value, 0)
}

function size_of(values) {
    return values.reduce((sum, value) => sum + Math.abs(value), 0)
}
