// The switch that outlines the critical path among the tasks, as a pinned task is.

import {lines_of, outlines_of} from "../plots/tasks/pinning.js"
import {all_drawn, models_of, RECTANGLES, tasks_in, TASKS} from "./models.js"

// `paths` has the numbers of the tasks of each computation.
export async function offer_critical_path(paths) {
    const button = document.getElementById("show-critical-path")
    await all_drawn()
    const [plot, rectangles, outlines, path] =
        await models_of(TASKS, RECTANGLES, "tasks on the critical path", "critical path")
    if (plot === null) return
    const show = async () => {
        const is_on = button.getAttribute("aria-pressed") === "true"
        const shown = is_on ? paths : []
        const page = is_on ? await tasks_in(plot, rectangles) : null
        outlines.data = joined(outlines.data, shown.map((numbers) => outlines_of(page, numbers)))
        path.data = joined(path.data, shown.map((numbers) => lines_of(page, numbers)))
    }
    button.hidden = false
    button.addEventListener("click", () => {
        const is_on = button.getAttribute("aria-pressed") === "true"
        button.setAttribute("aria-pressed", String(!is_on))
        show()
    })
    // On a phone there are no tasks.
    if (button.getClientRects().length > 0) await show()
}

// The columns of several sources below each other.
function joined(columns, parts) {
    return Object.fromEntries(Object.keys(columns).map((name) =>
        [name, parts.flatMap((part) => part[name])]))
}
