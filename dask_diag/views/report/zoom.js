// The buttons of findings and tasks that show their times in the timeline.

const AROUND = 0.05                 // of what is zoomed to, on each side

// To all of some intervals, each from left to right; a second time back to everything.
export function zoom(range, intervals) {
    const first = Math.min(...intervals.map(([left]) => left))
    const last = Math.max(...intervals.map(([, right]) => right))
    const space = Math.max(AROUND * (last - first), range.min_interval ?? 0)
    const [low, high] = range.bounds
    const target = {start: Math.max(low, first - space), end: Math.min(high, last + space)}
    const is_there = range.start === target.start && range.end === target.end
    range.setv(is_there ? {start: low, end: high} : target)
}
