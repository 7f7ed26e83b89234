// Bokeh's models in the page, which come after its text; names are those that Python gives them.

const WAIT = 20                     // milliseconds
const LONGEST_WAIT = 10_000
const SETTLED = 120                 // milliseconds without a change of the range
const AROUND = 0.05                 // of what is zoomed to, on each side

export const TASKS = "tasks"
export const RECTANGLES = "tasks in the page"

// The model of a name, as soon as it is there; null if all figures are drawn and none has it.
export async function model_of(model_name) {
    for (;;) {
        const is_last_look = are_drawn()
        const model = window.Bokeh?.documents[0]?.get_model_by_name(model_name)
        if (model || is_last_look) return model ?? null
        await later(WAIT)
    }
}

// The models of several names.
export function models_of(...names) {
    return Promise.all(names.map(model_of))
}

function are_drawn() {
    return document.documentElement.dataset.figures === "drawn"
}

// When all figures are there: what can wait does not put off what is in view.
export async function all_drawn() {
    while (!are_drawn()) await later(WAIT)
}

// The tasks that a plot draws, also where it is not shown; an error if they cannot be had.
export async function tasks_in(plot, rectangles) {
    // A plot is drawn when it is laid out, which one that is not shown is not.
    if (!rectangles.in_page) plot.properties.inner_width.change.emit()
    const stop = performance.now() + LONGEST_WAIT
    while (!rectangles.in_page) {
        if (rectangles.failure) throw new Error(rectangles.failure)
        if (performance.now() > stop) throw new Error("the tasks are not drawn yet")
        await later(WAIT)
    }
    return rectangles.in_page
}

// Calls back when the range has not changed for a moment; a button in an element shows all of it.
export function follow_range(range, element, moved) {
    let timer = null
    element.querySelector("[data-whole]").addEventListener("click", () => {
        const [start, end] = range.bounds
        range.setv({start, end})
    })
    range.change.connect(() => {
        clearTimeout(timer)
        timer = setTimeout(moved, SETTLED)
    })
}

function later(milliseconds) {
    return new Promise((resolve) => { setTimeout(resolve, milliseconds) })
}

// Zooms to all of some intervals, each from left to right; a second time back to everything.
export function zoom(range, intervals) {
    const first = Math.min(...intervals.map(([left]) => left))
    const last = Math.max(...intervals.map(([, right]) => right))
    const space = Math.max(AROUND * (last - first), range.min_interval ?? 0)
    const [low, high] = range.bounds
    const target = {start: Math.max(low, first - space), end: Math.min(high, last + space)}
    const is_there = range.start === target.start && range.end === target.end
    range.setv(is_there ? {start: low, end: high} : target)
}
