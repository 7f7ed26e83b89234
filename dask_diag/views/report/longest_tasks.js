// The table of the longest tasks follows the time that the plots show: it has those that ran then, even
// in part. sections.py makes it of the whole run; the page has all tasks.

import {count, moment, percent, seconds} from "../formatting.js"
import {short_key} from "../plots/tasks/lookups.js"
import {spans_in_view} from "../plots/tasks/rectangles.js"
import {follow_range, models_of, RECTANGLES, tasks_in, TASKS} from "./models.js"
import {count_again, sort_again} from "./sorted_tables.js"

const MOST = 50                     // tasks, as in the table of the whole run
const LONGEST_KEY = 500
const DIGITS = 100                  // times are as exact as a hundredth of what is shown

export async function follow_longest() {
    const root = document.getElementById("longest-tasks")
    if (root === null) return
    const [plot, rectangles] = await models_of(TASKS, RECTANGLES)
    if (plot === null) return
    const table = root.querySelector("table")
    const whole = {rows: [...table.tBodies[0].rows], caption: table.caption.textContent}
    const page = {root, table, whole, plot, rectangles, key_of: null}
    const range = plot.x_range
    let is_seen = false, is_late = true, is_chosen_here = false
    const show = async () => {
        if (!is_seen || !is_late) return
        is_late = false
        await show_range(page, range)
    }
    // A task that the reader looks up in the table is one of those in it: they stay.
    root.addEventListener("click", ({target}) => {
        is_chosen_here = target.closest("[data-start]") !== null
        setTimeout(() => { is_chosen_here = false })
    }, {capture: true})
    follow_range(range, root, show)
    range.change.connect(() => { is_late ||= !is_chosen_here || is_whole(range) })
    // Keys of a million tasks are not read for a table that nobody looks at.
    new IntersectionObserver((entries) => {
        is_seen = entries.at(-1).isIntersecting
        show()
    }).observe(root)
}

function is_whole({start, end, bounds: [low, high]}) {
    return start <= low && end >= high
}

async function show_range(page, range) {
    const {table, whole} = page
    if (is_whole(range)) {
        put(page, whole.rows, whole.caption, true)
        return
    }
    const {start, end} = range
    try {
        const in_page = await tasks_in(page.plot, page.rectangles)
        page.key_of ??= await in_page.read_keys(LONGEST_KEY) ?? (() => "")
        const {numbers, of} = longest_in(in_page.tasks, start, end)
        const rows = numbers.map((i) => row_of(table, facts_of(in_page, i, page.key_of), i))
        put(page, rows, caption_of(numbers.length, of, start, end), false)
    } catch (error) {
        put(page, whole.rows, `${whole.caption} (those of a part cannot be shown: ${error.message})`, true)
    }
    // Another part may have been chosen in the meantime.
    if (range.start !== start || range.end !== end) await show_range(page, range)
}

// Of the tasks that ran between two times the numbers of the longest, and how many there are.
export function longest_in(tasks, start, end) {
    const from = start / tasks.unit, to = end / tasks.unit
    const took = (i) => tasks.stop[i] - tasks.start[i]
    let numbers = [], of = 0, least = -Infinity
    const shorten = () => {
        numbers = numbers.sort((i, j) => took(j) - took(i) || i - j).slice(0, MOST)
        if (numbers.length === MOST) least = took(numbers.at(-1))
    }
    for (const [first, last] of spans_in_view(tasks, from, to)) {
        for (let i = first; i < last; i++) {
            if (tasks.stop[i] < from) continue
            of++
            if (took(i) > least) numbers.push(i)
            if (numbers.length > 4 * MOST) shorten()
        }
    }
    shorten()
    return {numbers, of}
}

// The cells of a task, as sections.py has them, and the seconds that its button shows.
function facts_of({tasks, functions, workers, outcomes}, i, key_of) {
    const name = functions[tasks.function[i]]
    const start = tasks.start[i] * tasks.unit, stop = tasks.stop[i] * tasks.unit
    const share = tasks.cpu[i] * tasks.unit / (stop - start)
    const cells = [
        short_key(key_of(i)) || name, name, workers[tasks.lane[i]],
        outcomes[tasks.outcome[i]].split(": ")[0],
        seconds(start), seconds(stop - start), stop > start ? percent(share) : "",
    ]
    return {cells, start, stop}
}

function row_of(table, {cells, start, stop}, i) {
    const row = document.createElement("tr")
    const headings = [...table.tHead.rows[0].cells]
    cells.forEach((text, n) => {
        const cell = document.createElement(n === 0 ? "th" : "td")
        if (n === 0) {
            const button = document.createElement("button")
            Object.assign(button, {type: "button", className: "place", textContent: text})
            button.title = "Show in timeline"
            Object.assign(button.dataset, {start, stop, task: i})
            cell.scope = "row"
            cell.append(button)
        } else {
            cell.className = headings[n].className
            cell.dataset.name = headings[n].textContent
            cell.textContent = text
        }
        row.append(cell)
    })
    return row
}

function caption_of(shown, of, start, end) {
    const decimals = Math.max(0, Math.ceil(-Math.log10((end - start) / DIGITS)))
    const when = `from ${moment(start, decimals)} to ${moment(end, decimals)}`
    return of === 0 ? `No task ran ${when}`
        : `The longest ${count(shown)} of ${count(of)} tasks that ran ${when}`
}

function put({root, table}, rows, caption, is_of_whole_run) {
    const has_focus = table.contains(document.activeElement)
    table.tBodies[0].replaceChildren(...rows)
    table.caption.textContent = caption
    table.parentElement.ariaLabel = caption
    root.querySelector("[data-part]").hidden = is_of_whole_run
    sort_again(table)
    count_again(table)
    // The focus is not lost with the button of a row.
    if (has_focus && !table.contains(document.activeElement)) table.parentElement.focus()
}
