// Lines of many points in a page: draws those in view, of each pixel first, last and extremes.
//
// So a line covers the same pixels as one through all of its points, and what hovers are points
// that are there. It runs once, when the plot has its place; see lines.py for what it is given.

const named = points

function made_of(columns, units) {
    return Object.fromEntries(Object.keys(units).map((name) => {
        const steps = columns[name], values = new Float64Array(steps.length)
        for (let i = 0, sum = 0; i < steps.length; i++) values[i] = (sum += steps[i]) * units[name]
        for (const place of columns["unknown " + name]) values[place] = NaN
        return [name, values]
    }))
}

// From the last point before what is in view to the first one after it.
function in_view({time}, from, to) {
    const first = first_above(time, from, 0, time.length)
    const last = first_above(time, to, first, time.length)
    return [Math.max(0, first - 1), Math.min(time.length, last + 1)]
}

function all_of(first, last) {
    return Array.from({length: last - first}, (_, n) => first + n)
}

function thinned(columns, drawn, first, last, from, per_pixel) {
    const {time} = columns, kept = [], lowest = [], highest = []
    let pixel = null, begun = first
    const keep = (end) => {
        const some = new Set([begun, ...lowest, ...highest, end])
        kept.push(...[...some].sort((a, b) => a - b))
    }
    for (let i = first; i < last; i++) {
        const here = Math.floor((time[i] - from) / per_pixel)
        if (here != pixel) {
            if (pixel != null) keep(i - 1)
            pixel = here
            begun = i
            drawn.forEach((_, n) => { lowest[n] = highest[n] = i })
            continue
        }
        for (let n = 0; n < drawn.length; n++) {
            const values = columns[drawn[n]]
            if (values[i] < values[lowest[n]] || isNaN(values[lowest[n]])) lowest[n] = i
            if (values[i] > values[highest[n]] || isNaN(values[highest[n]])) highest[n] = i
        }
    }
    if (pixel != null) keep(last - 1)
    return kept
}

function tell(text) {
    status.text = wrapped(text, plot)
}

function fail(error) {
    tell(`The ${named} cannot be drawn: ${error.message}`)
}

async function start() {
    const all = await Promise.all(lines.map(async (line) =>
        ({...line, columns: made_of(await unpacked(line.packed), line.units)})))
    draw_when_moved(plot, () => {
        const {start: from, end: to} = plot.x_range
        const per_pixel = (to - from) / Math.max(1, plot.inner_width)
        const spans = all.map(({columns}) => in_view(columns, from, to))
        const count = spans.reduce((sum, [first, last]) => sum + last - first, 0)
        all.forEach(({source, columns, drawn}, n) => {
            const [first, last] = spans[n]
            const kept = count <= most ? all_of(first, last)
                : thinned(columns, drawn, first, last, from, per_pixel)
            source.data = Object.fromEntries(Object.entries(columns).map(
                ([name, values]) => [name, kept.map((i) => values[i])]))
        })
        const told = count <= most ? "each drawn."
            : `of each pixel the first, the last and the extremes are drawn. Zoom in to see all, from `
                + `${most.toLocaleString("en")} on.`
        tell(`${count.toLocaleString("en")} ${named} in view, ${told} `
            + `In this page: ${precision}.`)
    }, fail)
}

if (!status.begun) {
    status.begun = true
    start().catch(fail)
}
