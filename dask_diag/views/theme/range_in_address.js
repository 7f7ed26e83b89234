// What the time axis of the page shows, in the page's address (#time=7.74..11.5, in seconds), so
// that it can be sent to others; the browser's back button returns to what was shown before.

const SETTLED = 400                 // milliseconds without a change
const PATTERN = /^#time=([^.]*(?:\.[^.]+)?)\.\.(.+)$/
const STEPS = 1e6                   // of a second

// The range of an address, within the bounds; null if it names none that can be shown.
export function range_of(hash, [lowest, highest]) {
    const [, first, last] = hash.match(PATTERN) ?? []
    const start = Math.max(lowest, Number(first || NaN))
    const end = Math.min(highest, Number(last || NaN))
    return start < end ? {start, end} : null
}

export function hash_of({start, end, bounds: [lowest, highest]}) {
    if (start <= lowest && end >= highest) return ""
    return `#time=${rounded(start)}..${rounded(end)}`
}

function rounded(time) {
    return Math.round(time * STEPS) / STEPS
}

// Shows what the address says, and keeps both the same from then on.
export function keep_in_address(range) {
    // A page within another one, as in a notebook, has no address of its own.
    if (window.top !== window) return
    let timer = null
    const [lowest, highest] = range.bounds
    const show = () => {
        const named = range_of(window.location.hash, range.bounds)
        if (named !== null) range.setv(named)
        return named !== null
    }
    show()
    window.addEventListener("popstate", () => {
        // Other addresses are those of sections.
        if (!show() && window.location.hash === "") range.setv({start: lowest, end: highest})
    })
    range.change.connect(() => {
        clearTimeout(timer)
        timer = setTimeout(() => note(hash_of(range)), SETTLED)
    })
}

function note(hash) {
    const {pathname, search, hash: current} = window.location
    if (hash === current || (hash === "" && !current.startsWith("#time="))) return
    window.history.pushState(null, "", hash || pathname + search)
}
