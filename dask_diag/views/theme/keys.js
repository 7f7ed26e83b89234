// Where a key moves a range of time.

const FASTER = 1.5                  // times as close, with each key
const STEP = 0.25                   // of what is shown

// The range that a key leads to, within its bounds; null if the key means nothing.
export function moved({start, end, bounds: [low, high], min_interval}, key) {
    const length = end - start, middle = (start + end) / 2
    if (key === "0" || key === "Escape") return {start: low, end: high}
    if (key === "+" || key === "=") {
        const shorter = Math.min(length, Math.max(length / FASTER, min_interval ?? 0))
        return around(middle, shorter, low, high)
    }
    if (key === "-" || key === "_") return around(middle, length * FASTER, low, high)
    if (key === "ArrowLeft") return around(middle - STEP * length, length, low, high)
    if (key === "ArrowRight") return around(middle + STEP * length, length, low, high)
    return null
}

function around(middle, length, low, high) {
    const shown = Math.min(length, high - low)
    const start = Math.max(low, Math.min(high - shown, middle - shown / 2))
    return {start, end: start + shown}
}
