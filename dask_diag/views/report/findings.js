// Where findings and tasks are: pointing at a finding shades its times in the plot of workers, its
// button and that of a task zoom there.

const WAIT_FOR_BOKEH = 20           // milliseconds
const AROUND = 0.05                 // of what is zoomed to, on each side

export function start(plot_name) {
    const plot = window.Bokeh?.documents[0]?.get_model_by_name(plot_name)
    if (!plot) {
        setTimeout(() => start(plot_name), WAIT_FOR_BOKEH)
        return
    }
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

// To all of some intervals; a second time back to everything.
function zoom(range, shades) {
    const first = Math.min(...shades.map((model) => model.left))
    const last = Math.max(...shades.map((model) => model.right))
    const space = Math.max(AROUND * (last - first), range.min_interval ?? 0)
    const [low, high] = range.bounds
    const target = {start: Math.max(low, first - space), end: Math.min(high, last + space)}
    const is_there = range.start === target.start && range.end === target.end
    range.setv(is_there ? {start: low, end: high} : target)
}
