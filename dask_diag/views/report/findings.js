// Where findings and tasks are: pointing at a finding shades its times in the plot of workers, its
// button and that of a task zoom there.

import {models_of, zoom} from "./models.js"

export async function mark_findings() {
    const [plot, shades] = await models_of("workers", "shades")
    if (plot === null || shades === null) return
    for (const card of document.querySelectorAll("[data-finding]")) {
        const intervals = JSON.parse(card.dataset.finding)
        if (intervals.length === 0) continue
        const shade = (shaded) => () => {
            shades.data = {left: shaded.map(([left]) => left), right: shaded.map(([, right]) => right)}
        }
        for (const type of ["mouseenter", "focusin"]) card.addEventListener(type, shade(intervals))
        for (const type of ["mouseleave", "focusout"]) card.addEventListener(type, shade([]))
        const button = card.querySelector("button")
        button.hidden = false
        button.addEventListener("click", () => {
            zoom(plot.x_range, intervals)
            show_timeline()
        })
    }
    // Rows of tables come and go: their buttons are those that are there when one is clicked.
    document.addEventListener("click", ({target}) => {
        const button = target.closest("[data-start]")
        if (button === null) return
        zoom(plot.x_range, [[Number(button.dataset.start), Number(button.dataset.stop)]])
        document.getElementById("timeline").scrollIntoView()
    })
}

// On a large window it is beside the findings, and the page stays where it is.
function show_timeline() {
    const timeline = document.getElementById("timeline")
    const {top, bottom} = timeline.getBoundingClientRect()
    if (top > innerHeight / 2 || bottom < innerHeight / 2) timeline.scrollIntoView()
}
