// Columns that travelled deflated are made columns again: the other side of packed.py.

async function inflated(data) {
    if (typeof DecompressionStream == "undefined")
        throw new Error("this browser cannot unpack what is to be drawn (it has no DecompressionStream): "
            + "open the page in a browser from 2023 or later")
    const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"))
    return new Uint8Array(await new Response(stream).arrayBuffer())
}

async function unpacked({layout, data}) {
    const bytes = await inflated(data)
    const columns = {}
    let at = 0
    for (const [name, length, width, signed] of layout) {
        if (width == 0) {
            columns[name] = new TextDecoder().decode(bytes.subarray(at, at + length))
            at += length
            continue
        }
        const values = width <= 3 ? new Int32Array(length) : new Float64Array(length)
        for (let plane = 0, scale = 1; plane < width; plane++, scale *= 256)
            for (let i = 0; i < length; i++) values[i] += scale * bytes[at++]
        if (signed)
            for (let i = 0; i < length; i++)
                values[i] = values[i] % 2 ? -(values[i] + 1) / 2 : values[i] / 2
        columns[name] = values
    }
    return columns
}

// The first position from `low` to `high` at which ascending `values` are above `bound`.
function first_above(values, bound, low, high) {
    while (low < high) {
        const middle = (low + high) >> 1
        if (values[middle] > bound) high = middle
        else low = middle + 1
    }
    return low
}

// A text below a plot, in as many lines as it takes in the room that there is.
function wrapped(text, plot) {
    const room = Math.max(20, Math.floor((plot.outer_width - 90) / 5.6)), lines = [""]
    for (const word of text.split(" ")) {
        if (lines.at(-1) != "" && lines.at(-1).length + 1 + word.length > room) lines.push("")
        lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word
    }
    return lines.join("\n")
}

// Draw now, and again whenever what is in view has changed, once a frame at most.
//
// The range is found when the page is there: plots that share a time axis are given theirs late.
function draw_when_moved(plot, draw, fail) {
    let waiting = false
    const draw_soon = () => {
        if (waiting) return
        waiting = true
        requestAnimationFrame(async () => {
            waiting = false
            try {
                await draw()
            } catch (error) {
                fail(error)
            }
        })
    }
    plot.x_range.change.connect(draw_soon)
    plot.properties.inner_width.change.connect(draw_soon)
    draw_soon()
}
