// What plots of many rows share: they draw what is in view, and say below what that is.

const WIDTH_OF_A_LETTER = 5.6
const MARGIN = 90
const FEWEST_LETTERS = 20

// The first index from `low` to `high` at which ascending `values` are above `bound`.
export function first_above(values, bound, low, high) {
    while (low < high) {
        const middle = (low + high) >> 1
        if (values[middle] > bound) high = middle
        else low = middle + 1
    }
    return low
}

// A text in as many lines as it takes below a plot that is so wide. With the longest text that may
// replace it, it has the lines of that: the plot above does not change its height.
export function wrapped(text, plot_width, longest = "") {
    const lines = lines_of(text, plot_width)
    const more = lines_of(longest, plot_width).length - lines.length
    return [...lines, ...Array(Math.max(0, more)).fill("\u00a0")].join("\n")
}

function lines_of(text, plot_width) {
    const letters = Math.max(FEWEST_LETTERS, Math.floor((plot_width - MARGIN) / WIDTH_OF_A_LETTER))
    const lines = [""]
    for (const word of text.split(" ")) {
        const last = lines.at(-1)
        if (last !== "" && last.length + 1 + word.length > letters) lines.push(word)
        else lines[lines.length - 1] += (last ? " " : "") + word
    }
    return lines
}

export function pixel_width(plot) {
    return (plot.x_range.end - plot.x_range.start) / Math.max(1, plot.inner_width)
}

// Draw now, and again whenever what is in view has changed, once a frame at most. The promise that it
// returns is kept when it has drawn for the first time.
//
// The range is looked up when the page is there: plots that share a time axis are given it late.
export function draw_when_moved(plot, draw, report_error) {
    let is_waiting = false
    return new Promise((resolve) => {
        const draw_soon = () => {
            if (is_waiting) return
            is_waiting = true
            requestAnimationFrame(async () => {
                is_waiting = false
                try {
                    await draw()
                } catch (error) {
                    report_error(error)
                }
                resolve()
            })
        }
        plot.x_range.change.connect(draw_soon)
        plot.properties.inner_width.change.connect(draw_soon)
        draw_soon()
    })
}
