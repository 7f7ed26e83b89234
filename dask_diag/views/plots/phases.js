// The names of phases: in the middle of what is in view of each, where they fit into it.

import {draw_when_moved} from "./in_view.js"

const WIDTH_OF_A_LETTER = 6.5       // pixels
const MARGIN = 8

export function name_phases({plot, phases}) {
    if (phases.some(({label}) => label.tags.includes("placed"))) return
    for (const {label} of phases) label.tags = ["placed"]
    draw_when_moved(plot, () => {
        const {start, end} = plot.x_range
        for (const {label, left, right} of phases) {
            const {x, fits} = place(label.text, left, right, start, end, plot.inner_width)
            label.x = x
            label.visible = fits
        }
    }, console.error)
}

// Where the name of a phase from `left` to `right` is, where seconds from `start` to `end` are
// `width` pixels, and whether it fits.
export function place(text, left, right, start, end, width) {
    const first = Math.max(left, start), last = Math.min(right, end)
    const pixels = (last - first) / (end - start) * width
    return {x: (first + last) / 2, fits: pixels >= text.length * WIDTH_OF_A_LETTER + MARGIN}
}
