// The keys of tasks, of the patterns and numbers that tasks.py made of them.

const NUMBER = "\x1f"
const BETWEEN_PATTERNS = "\x1e"

// A function that gives the key of a task, of at most `size` letters.
export function key_reader(columns, functions, size) {
    const patterns = columns.patterns.split(BETWEEN_PATTERNS).map((text) => text.split(NUMBER))
    const pattern = sums_by_group(columns.pattern, functions)
    const first = new Int32Array(pattern.length + 1)
    for (let i = 0; i < pattern.length; i++)
        first[i + 1] = first[i] + patterns[pattern[i]].length - 1
    const numbers = new Float64Array(first[pattern.length])
    for (let slot = 0; columns[`numbers-${slot}`]; slot++)
        fill_slot(numbers, columns[`numbers-${slot}`], slot, pattern, first)
    return (i) => shortened(patterns[pattern[i]].reduce(
        (text, piece, n) => text + numbers[first[i] + n - 1] + piece), size)
}

// Each came as the difference to the one before it in its group.
function sums_by_group(steps, groups) {
    const sums = []
    return Int32Array.from(steps, (step, i) => sums[groups[i]] = (sums[groups[i]] ?? 0) + step)
}

// The numbers at one position of the patterns that have so many.
function fill_slot(numbers, steps, slot, pattern, first) {
    const sums = []
    for (let i = 0, step = 0; i < pattern.length; i++)
        if (first[i] + slot < first[i + 1])
            numbers[first[i] + slot] = sums[pattern[i]] = (sums[pattern[i]] ?? 0) + steps[step++]
}

function shortened(text, size) {
    const letters = [...text]
    if (letters.length <= size) return text
    const tail = Math.floor((size - 1) / 3)
    return [...letters.slice(0, size - 1 - tail), "…", ...letters.slice(letters.length - tail)].join("")
}
