// The source of the program: the share of each line in what the reader chooses to see. Pointing at a line
// outlines its tasks in the timeline; a pinned task, or the one that the mouse points at, marks the lines
// that built it. lines.py has the numbers.

import {unpacked} from "../plots/binary_columns.js"
import {emptied} from "../plots/columns.js"
import {outlines_of, task_at} from "../plots/tasks/pinning.js"
import {count, percent, seconds, size} from "../formatting.js"
import {models_of, RECTANGLES, tasks_in, TASKS} from "./models.js"

const MEASURES = [["task time", seconds, "of task time"], ["CPU", seconds, "of CPU time of tasks"],
                  ["built in", seconds, "in which lines built or optimized graphs"],
                  ["results", size, "of results"]]
const [TASKS_OF, FUNCTIONS, COLOR, GROUPS] = [4, 5, 6, 7]

export function show_lines({modes, groups}, has_figures) {
    const root = document.getElementById("by-line")
    const rows = [...root.querySelectorAll("[data-line]")]
    const page = {root, rows, modes, packed: groups, mode: "line", measure: 0, is_whole: false,
                  chosen: null, pinned: null}
    root.addEventListener("click", ({target}) => {
        const button = target.closest(".switch button")
        if (button === null) return
        const {measure, mode} = button.dataset
        if (measure !== undefined) page.measure = Number(measure)
        else if (mode !== undefined) page.mode = mode
        else page.is_whole = !page.is_whole
        show(page)
    })
    root.querySelector("[data-far]").hidden = root.querySelector(".far") === null
    show(page)
    if (has_figures) join_timeline(page)
}

function show(page) {
    const {root, rows, modes, mode, measure, is_whole} = page
    const values = modes[mode], [heading, format, of] = MEASURES[measure]
    const known = Object.values(values).map((numbers) => numbers[measure]).filter((value) => value !== null)
    const total = known.reduce((sum, value) => sum + value, 0), largest = Math.max(0, ...known)
    root.querySelector("[data-total]").textContent = known.length > 0 ? format(total) : "Nothing known"
    root.querySelector("[data-of]").textContent = of
    root.querySelector("[data-heading]").textContent = heading
    for (const button of root.querySelectorAll(".switch button"))
        button.setAttribute("aria-pressed", String(is_pressed(button.dataset, page)))
    for (const row of root.querySelectorAll(".far")) row.hidden = !is_whole
    for (const row of rows) write(row, values[row.dataset.line] ?? null, {measure, format, total, largest})
}

function is_pressed(choice, {mode, measure, is_whole}) {
    if (choice.measure !== undefined) return Number(choice.measure) === measure
    return choice.mode === undefined ? is_whole : choice.mode === mode
}

// The cells of a line, of which there are no numbers if its work is that of another line.
function write(row, numbers, {measure, format, total, largest}) {
    const value = numbers?.[measure] ?? null
    const share = value === null || total === 0 ? "" : percent(value / total)
    const texts = {share, value: "", functions: ""}
    if (numbers !== null) {
        texts.value = value === null ? "unknown" : format(value)
        texts.functions = `${numbers[FUNCTIONS]} (${counted(numbers[TASKS_OF])})`
    }
    for (const [name, text] of Object.entries(texts)) row.querySelector(`[data-${name}]`).textContent = text
    const button = row.querySelector("button")
    button.hidden = numbers === null || numbers[GROUPS].length === 0
    button.nextElementSibling.hidden = !button.hidden
    const piece = document.createElement("span")
    piece.style.width = `${largest > 0 ? 100 * value / largest : 0}%`
    piece.style.setProperty("--color", numbers?.[COLOR] || "var(--muted)")
    row.querySelector(".bar").replaceChildren(...value > 0 ? [piece] : [])
}

function counted(tasks) {
    return `${count(tasks)} ${tasks === 1 ? "task" : "tasks"}`
}

// Lines and the tasks that they built show each other.
async function join_timeline(page) {
    const [plot, rectangles, outlines] = await models_of(TASKS, RECTANGLES, "pinned tasks")
    if (plot === null) return
    const read = async () => {
        page.group ??= (await unpacked(page.packed)).group
        page.tasks ??= {...await tasks_in(plot, rectangles), plot}
        return page
    }
    const outline = async (row) => {
        // What is pinned stays.
        if (page.pinned !== null) return
        const groups = new Set(row === null ? [] : page.modes[page.mode][row.dataset.line]?.[GROUPS])
        if (groups.size === 0) {
            outlines.data = emptied(outlines.data)
            return
        }
        const {group, tasks} = await read()
        const numbers = [...tasks.tasks.start.keys()].filter((i) => groups.has(group[i] - 1))
        outlines.data = outlines_of(tasks, numbers)
    }
    const choose = (row) => {
        page.chosen = page.chosen === row ? null : row
        for (const other of page.rows) {
            const is_chosen = other === page.chosen
            other.classList.toggle("chosen", is_chosen)
            other.querySelector("button").setAttribute("aria-pressed", String(is_chosen))
        }
        return outline(page.chosen)
    }
    for (const row of page.rows) {
        for (const type of ["mouseenter", "focusin"]) row.addEventListener(type, () => outline(row))
        for (const type of ["mouseleave", "focusout"]) row.addEventListener(type, () => outline(page.chosen))
        row.querySelector("button").addEventListener("click", async () => {
            await choose(row)
            if (page.chosen !== null) document.getElementById("timeline").scrollIntoView()
        })
    }
    mark_lines(page, rectangles, read)
}

// The lines that built the task that is pinned, or else the one that the mouse points at.
function mark_lines(page, rectangles, read) {
    const mark = (number) => {
        const built = number === null ? [] : page.rows.filter((row) => {
            const groups = page.modes[page.mode][row.dataset.line]?.[GROUPS] ?? []
            return groups.includes(page.group[number] - 1)
        })
        for (const row of page.rows) row.classList.toggle("built-pinned", built.includes(row))
        return built
    }
    rectangles.mousemove = async (x, y) => {
        // Where many tasks share a pixel, none is drawn that the mouse could point at.
        const number = rectangles.get_length() === 0 ? null : task_at((await read()).tasks, x, y)
        if (page.pinned === null) mark(number)
    }
    rectangles.mouseleave = () => {
        if (page.pinned === null) mark(null)
    }
    document.addEventListener("pinned", async ({detail}) => {
        page.pinned = detail
        if (detail !== null) await read()
        if (detail !== page.pinned) return
        const names = mark(detail).map(place_of).join(", ")
        if (names !== "") document.querySelector("#pinned [data-facts]").append(` · built by ${names}`)
    })
}

// Such as analysis.py:12.
function place_of(row) {
    const file = row.parentElement.querySelector(".source-file")?.textContent ?? ""
    const number = row.querySelector("th").lastElementChild.textContent
    return number === "" ? row.querySelector("code").textContent : `${file}:${number}`
}
