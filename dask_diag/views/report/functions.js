// The table of functions follows the time that the plots show: of each bin that is in view, even in part,
// it has all. functions.py says what it is given.

import {count, moment, percent, seconds} from "../formatting.js"
import {unpacked} from "../plots/binary_columns.js"
import {follow_range, model_of} from "./models.js"
import {sort_again} from "./sorted_tables.js"

const ROUNDING = 1e-6               // of a bin: its edge is where a range ends
const WITHOUT_TASK = -1             // the row of seconds in which workers had no task

export async function follow_functions(bins) {
    const root = document.getElementById("by-function")
    const plot = await model_of("workers")
    if (plot === null) return
    const initial = contents_of(root)
    const range = plot.x_range
    const show = () => show_range(root, bins, initial, range)
    follow_range(range, root, show)
    await show()
}

async function show_range(root, bins, initial, range) {
    const shown = bins_in(range, bins)
    const is_whole = shown.first === 0 && shown.last === bins.bins
    root.querySelector("[data-part]").hidden = is_whole
    if (is_whole) restore(root, initial)
    else write(root, bins, shown, await columns_of(bins))
    sort_again(root.querySelector("table"))
}

// From the first bin in view to the one after the last.
export function bins_in({start, end}, {length, bins}) {
    const first = Math.min(bins - 1, Math.max(0, Math.floor(start / length + ROUNDING)))
    const last = Math.max(first + 1, Math.min(bins, Math.ceil(end / length - ROUNDING)))
    return {first, last}
}

const unpacked_columns = new WeakMap()

// Unpacked once, when first asked for.
function columns_of(bins) {
    if (!unpacked_columns.has(bins)) unpacked_columns.set(bins, unpacked(bins.packed))
    return unpacked_columns.get(bins)
}

// What is in these bins: of each row its seconds by activity, CPU (NaN if unknown), how many tasks
// started, and the longest of them.
export function rows_in({first, last}, {bins, tick, rows, pieces, activities}, columns) {
    const sum = (column, row) => {
        let total = 0
        for (let bin = first; bin < last; bin++) total += column[row * bins + bin]
        return total
    }
    const largest = (column, row) => {
        let most = 0
        for (let bin = first; bin < last; bin++) most = Math.max(most, column[row * bins + bin])
        return most
    }
    const unmeasured = new Set(columns.unmeasured)
    const nothing = () => new Float64Array(activities.length)
    const of_row = (row) => ({
        row, seconds: nothing(),
        cpu: unmeasured.has(row) ? NaN : sum(columns.cpu, row) * tick,
        tasks: sum(columns.tasks, row),
        longest: largest(columns.longest, row) * tick,
    })
    const all = Array.from({length: rows}, (_, row) => of_row(row))
    const free = nothing()
    pieces.forEach(([row, activity], n) => {
        const kinds = row === WITHOUT_TASK ? free : all[row].seconds
        kinds[activity] += sum(columns.seconds, n) * tick
    })
    return {rows: all, free}
}

function total_of(kinds) {
    return kinds.reduce((sum, value) => sum + value, 0)
}

function write(root, bins, shown, columns) {
    const {rows, free} = rows_in(shown, bins, columns)
    const all = free.map((value, n) => rows.reduce((sum, row) => sum + row.seconds[n], value))
    const total = total_of(all), longest = Math.max(...rows.map((row) => total_of(row.seconds)))
    const measured = rows.filter(({cpu}) => !Number.isNaN(cpu))
    const sums = {
        row: "total",
        seconds: free.map((value, n) => all[n] - value),
        cpu: measured.length === 0 ? NaN : measured.reduce((sum, {cpu}) => sum + cpu, 0),
        tasks: rows.reduce((sum, {tasks}) => sum + tasks, 0),
        longest: Math.max(...rows.map((row) => row.longest)),
    }
    root.querySelector("[data-total]").textContent = seconds(total)
    for (const place of root.querySelectorAll("[data-range]")) place.textContent = text_of(shown, bins)
    fill_bar(root, "all", all, total, bins.activities)
    for (const item of root.querySelectorAll("[data-activity]")) {
        const value = all[item.dataset.activity]
        item.hidden = value === 0
        item.lastElementChild.textContent = `${seconds(value)}, ${percent(total > 0 ? value / total : 0)}`
    }
    for (const row of [...rows, sums]) {
        const element = root.querySelector(`tr[data-row="${row.row}"]`)
        const time = total_of(row.seconds)
        const texts = [seconds(time), total > 0 ? percent(time / total) : "",
                       Number.isNaN(row.cpu) ? "unknown" : seconds(row.cpu), count(row.tasks),
                       seconds(row.longest)]
        // Of those that did nothing then, nothing is said.
        element.hidden = row !== sums && time === 0 && row.tasks === 0
        // What follows these is not known of a part of the time.
        const cells = element.querySelectorAll("td.number")
        texts.forEach((text, n) => { if (cells[n]) cells[n].textContent = text })
        if (row !== sums) fill_bar(root, row.row, row.seconds, longest, bins.activities)
    }
}

function text_of({first, last}, {length}) {
    const from = first * length, to = last * length
    // As many digits as the edges of bins are apart.
    const decimals = Math.max(0, Math.ceil(-Math.log10(length)))
    return `, from ${moment(from, decimals)} to ${moment(to, decimals)}, in steps of ${seconds(length)}`
}

function fill_bar(root, row, kinds, longest, activities) {
    const pieces = activities.flatMap(({name, color, style}, n) => {
        if (!(kinds[n] > 0 && longest > 0)) return []
        const piece = document.createElement("span")
        piece.className = style
        piece.title = `${name}: ${seconds(kinds[n])}`
        piece.style.width = `${100 * kinds[n] / longest}%`
        piece.style.setProperty("--color", color)
        return [piece]
    })
    root.querySelector(`[data-row="${row}"] .bar`).replaceChildren(...pieces)
}

// What the page was made with, which it has again when all time is shown.
function contents_of(root) {
    const places = root.querySelectorAll("[data-total], [data-range], [data-activity] > :last-child,"
        + " .bar, td.number")
    return [...places].map((place) => [place, [...place.childNodes]])
}

function restore(root, initial) {
    for (const element of root.querySelectorAll("[data-activity], tr")) element.hidden = false
    for (const [place, nodes] of initial) place.replaceChildren(...nodes)
}
