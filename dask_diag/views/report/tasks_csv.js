// The tasks of the page as comma-separated values, and what the page does not have of them.

import {count, seconds} from "../formatting.js"

const COLUMNS = ["function", "worker", "start", "stop", "thread_cpu", "outcome"]
const ROWS_IN_A_PART = 10_000
const UNFINISHED = /^unfinished/
const NEEDS_QUOTES = /[",\r\n]/
const FORMULA = /^[=+\-@\t\r']/     // what a spreadsheet would run, and the mark that is put before it

// What is not in the page: of each lack a word for the file's name, and a text.
export function lacks_of({tasks}, recorded, has_keys, has_short_names) {
    const left_out = recorded - tasks.start.length
    return [
        ...tasks.unit === 1 ? [] : [["rounded",
            `times to ${seconds(tasks.unit)}, CPU times to that or 0.2%`]],
        ...has_keys ? [] : [["without-keys", "keys are left out"]],
        ...left_out === 0 ? [] : [[`without-${left_out}-tasks`,
            `${count(left_out)} of ${count(recorded)} tasks are left out: when they started is not known`]],
        ...has_short_names ? [["short-names", "long names are cut"]] : [],
    ]
}

// Texts that are the file together, and whether names in it are cut.
export function csv_of({tasks, ...texts}, key_of) {
    const names = [...key_of === null ? [] : ["key"], ...COLUMNS]
    const functions = texts.functions.map(cell), outcomes = texts.outcomes.map(cell)
    const workers = texts.workers.map(cell)
    // Whole numbers over a whole number: no digit that was not measured.
    const per_second = Math.round(1 / tasks.unit)
    const time = (value) => Number.isNaN(value) ? "" : String(value / per_second)
    const parts = [`${names.join(",")}\r\n`]
    let has_short_names = [...texts.functions, ...texts.workers].some(is_cut)
    for (let first = 0; first < tasks.start.length; first += ROWS_IN_A_PART) {
        const last = Math.min(tasks.start.length, first + ROWS_IN_A_PART)
        let part = ""
        for (let i = first; i < last; i++) {
            const key = key_of?.(i)
            has_short_names ||= key !== undefined && is_cut(key)
            const outcome = texts.outcomes[tasks.outcome[i]]
            const stop = UNFINISHED.test(outcome) ? "" : time(tasks.stop[i])
            part += `${key === undefined ? "" : `${cell(key)},`}${functions[tasks.function[i]]},`
                + `${workers[tasks.lane[i]]},${time(tasks.start[i])},${stop},`
                + `${time(tasks.cpu[i])},${outcomes[tasks.outcome[i]]}\r\n`
        }
        parts.push(part)
    }
    return {parts, has_short_names}
}

function is_cut(text) {
    return text.includes("…")
}

function cell(text) {
    const safe = FORMULA.test(text) ? `'${text}` : text
    return NEEDS_QUOTES.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
