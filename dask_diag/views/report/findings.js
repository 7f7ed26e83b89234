// Where findings and tasks are: pointing at a finding shades its times in the plot of workers, its
// button and that of a task zoom there.

import {model_of} from "./models.js"
import {zoom} from "./zoom.js"

export async function mark_findings(plot_name) {
    const plot = await model_of(plot_name)
    for (const card of document.querySelectorAll("[data-finding]")) {
        const shades = plot.center.filter((model) => model.name === card.dataset.finding)
        if (shades.length === 0) continue
        const shade = (visible) => () => { for (const model of shades) model.visible = visible }
        for (const type of ["mouseenter", "focusin"]) card.addEventListener(type, shade(true))
        for (const type of ["mouseleave", "focusout"]) card.addEventListener(type, shade(false))
        const button = card.querySelector("button")
        button.hidden = false
        button.addEventListener("click", () => zoom(plot.x_range, shades))
    }
    for (const button of document.querySelectorAll("[data-start]")) {
        const {start: left, stop: right} = button.dataset
        button.addEventListener("click", () => {
            zoom(plot.x_range, [{left: Number(left), right: Number(right)}])
            document.getElementById("timeline").scrollIntoView()
        })
    }
}
