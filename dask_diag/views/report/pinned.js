// The row below the plots: what is known of the task that was clicked, until Escape or another click.

import {unpacked} from "../plots/binary_columns.js"
import {emptied} from "../plots/columns.js"
import {detail_reader, facts_of, name_of_task, path_text, path_to} from "../plots/tasks/details.js"
import {lines_of, outlines_of, task_at} from "../plots/tasks/pinning.js"
import {models_of, RECTANGLES, tasks_in, TASKS, zoom} from "./models.js"

const LONGEST_KEY = 500
const ZOOM_IN = "Many tasks share a pixel here: zoom in until each is drawn, then click one."

export async function offer_pins() {
    const row = document.getElementById("pinned")
    if (row === null) return
    const [plot, rectangles, outlines, path] =
        await models_of(TASKS, RECTANGLES, "pinned tasks", "path to the pinned task")
    if (plot === null) return
    const pins = {row, plot, rectangles, outlines, path, read: null, number: null}
    rectangles.tap = (x, y) => guarded(pins, () => pin_at(pins, x, y))
    document.addEventListener("click", ({target}) => {
        const button = target.closest("[data-task]")
        if (button !== null) guarded(pins, () => pin(pins, Number(button.dataset.task)))
    })
    button_of(row, "zoom").addEventListener("click", () => guarded(pins, () => zoom_to(pins, [pins.number])))
    button_of(row, "path").addEventListener("click", () => guarded(pins, () => show_path(pins)))
    button_of(row, "unpin").addEventListener("click", () => unpin(pins))
    document.addEventListener("keydown", (event) => {
        // In a menu Escape closes the menu.
        if (event.key !== "Escape" || row.hidden || event.target.closest?.("details[open]")) return
        event.stopPropagation()
        unpin(pins)
    }, {capture: true})
}

async function guarded(pins, work) {
    try {
        await work()
    } catch (error) {
        show(pins, `The task cannot be shown: ${error.message}`)
    }
}

// What the page knows of its tasks; keys and details are unpacked once, when first asked for.
async function read(pins) {
    pins.read ??= (async () => {
        const in_page = await tasks_in(pins.plot, pins.rectangles)
        const key_of = await in_page.read_keys(LONGEST_KEY)
        const detail_of = detail_reader(await unpacked(in_page.details))
        const {functions} = in_page
        const name_of = (i) => name_of_task(functions[in_page.tasks.function[i]], key_of?.(i))
        return {...in_page, plot: pins.plot, key_of, detail_of, name_of}
    })()
    return await pins.read
}

async function pin_at(pins, x, y) {
    const page = await read(pins)
    const number = task_at(page, x, y)
    if (number === null) unpin(pins)
    else if (pins.rectangles.get_length() === 0) show(pins, ZOOM_IN)
    else await pin(pins, number)
}

async function pin(pins, number) {
    const page = await read(pins)
    const detail = page.detail_of(number)
    const facts = facts_of(page, number, detail, page.name_of)
    show(pins, ` · ${facts.join(" · ")}`, page.name_of(number), page.key_of?.(number))
    pins.number = number
    button_of(pins.row, "zoom").hidden = false
    button_of(pins.row, "path").hidden = (detail?.last ?? null) === null
    pins.outlines.data = outlines_of(page, [number])
    tell(number)
}

// To other parts of the page: the number of the pinned task, or null.
function tell(number) {
    document.dispatchEvent(new CustomEvent("pinned", {detail: number}))
}

async function show_path(pins) {
    const page = await read(pins)
    const path = path_to(pins.number, page.detail_of)
    pins.row.querySelector("[data-path]").textContent = ` · ${path_text(page.tasks, path)}`
    pins.outlines.data = outlines_of(page, path.path)
    pins.path.data = lines_of(page, path.path)
    await zoom_to(pins, path.path)
}

async function zoom_to(pins, numbers) {
    const {tasks} = await read(pins)
    const first = numbers[0], last = numbers.at(-1)
    zoom(pins.plot.x_range, [[tasks.start[first] * tasks.unit, tasks.stop[last] * tasks.unit]])
}

// Other texts than those of a pinned task have no name, and no buttons but the one that closes.
function show(pins, text, task = "", key = "") {
    unpin(pins)
    const heading = pins.row.querySelector("[data-name]")
    heading.textContent = task
    heading.title = key
    pins.row.querySelector("[data-facts]").textContent = text
    pins.row.hidden = false
}

function unpin(pins) {
    pins.row.hidden = true
    pins.number = null
    for (const part of pins.row.querySelectorAll("[data-name], [data-facts], [data-path]"))
        part.textContent = ""
    for (const action of ["zoom", "path"]) button_of(pins.row, action).hidden = true
    for (const source of [pins.outlines, pins.path]) source.data = emptied(source.data)
    tell(null)
}

function button_of(row, action) {
    return row.querySelector(`[data-action="${action}"]`)
}
