// A single task in words, and the path that led to it; tasks.py has what is not in its rectangle.

import {count, percent, seconds, size} from "../../formatting.js"
import {short_key} from "./lookups.js"

const EXACT = 1e-9                  // seconds: of times as they were measured
const ROUNDED = 2                   // ticks: two rounded durations may differ so much by chance

// A function that gives of a task its last dependency and the bytes of its result. It gives null
// where they are not in the page; `last` is null where there is none, `nbytes` NaN where unknown.
export function detail_reader({step, back, size: sizes}) {
    const rows = step === undefined ? null : new Map()
    let number = 0
    step?.forEach((numbers, row) => rows.set(number += numbers, row))
    return (i) => {
        const row = rows === null ? i : rows.get(i)
        if (row === undefined) return null
        return {last: back[row] === 0 ? null : i - back[row], nbytes: sizes[row] === 0 ? NaN : sizes[row] - 1}
    }
}

// What is known of a task, as texts; `name_of` names a task.
export function facts_of({tasks, outcomes}, i, detail, name_of) {
    const length = (tasks.stop[i] - tasks.start[i]) * tasks.unit
    const cpu = tasks.cpu[i] * tasks.unit
    const share = Number.isNaN(cpu) || length <= 0 ? "unknown" : percent(cpu / length)
    const outcome = outcomes[tasks.outcome[i]]
    return [
        `${seconds(length)} (CPU ${share})`,
        ...outcome === "ok" ? [] : [outcome],
        rank_text(rank_of(tasks, i)),
        ...detail === null ? ["what it waited for is left out of this page"] : [],
        ...detail?.last === null || detail === null ? [] : [waiting_text(tasks, i, detail.last, name_of)],
        ...Number.isNaN(detail?.nbytes ?? NaN) ? [] : [`result ${size(detail.nbytes)}`],
    ]
}

// Of the tasks of its function: how many there are, are longer, and may or may not be longer.
export function rank_of(tasks, i) {
    const length = tasks.stop[i] - tasks.start[i]
    const is_exact = tasks.unit === 1
    const least = is_exact ? EXACT : ROUNDED
    let of = 0, longer = 0, alike = 0
    for (let j = 0; j < tasks.start.length; j++) {
        if (tasks.function[j] !== tasks.function[i]) continue
        of++
        const more = tasks.stop[j] - tasks.start[j] - length
        if (more >= least) longer++
        else if (!is_exact && j !== i && more > -least) alike++
    }
    return {of, longer, alike}
}

function rank_text({of, longer, alike}) {
    if (of === 1) return "the only one"
    if (longer + alike === 0) return `longest of ${count(of)}`
    const place = Math.round(longer + alike / 2) + 1
    return `${alike > 0 ? "about " : ""}${ordinal(place)} longest of ${count(of)}`
}

const SUFFIXES = {one: "st", two: "nd", few: "rd", other: "th"}
const ORDINALS = new Intl.PluralRules("en", {type: "ordinal"})

function ordinal(n) {
    return `${count(n)}${SUFFIXES[ORDINALS.select(n)]}`
}

function waiting_text(tasks, i, last, name_of) {
    const before = (tasks.start[i] - tasks.stop[last]) * tasks.unit
    const when = before > 0 ? `, until ${seconds(before)} before it started` : ""
    return `waited for ${name_of(last)}${when}`
}

// The last dependency of the last dependency, and so on: the numbers of these tasks, the first one
// first, and whether the page knows what the first one waited for.
export function path_to(i, detail_of) {
    const path = [i]
    let detail = detail_of(i)
    while (detail !== null && detail.last !== null) {
        path.push(detail.last)
        detail = detail_of(detail.last)
    }
    return {path: path.reverse(), is_complete: detail !== null}
}

export function path_text(tasks, {path, is_complete}) {
    const span = (tasks.stop[path.at(-1)] - tasks.start[path[0]]) * tasks.unit
    const work = path.reduce((sum, i) => sum + tasks.stop[i] - tasks.start[i], 0) * tasks.unit
    const rest = is_complete ? "" : "; what came before is left out of this page"
    return `path: ${count(path.length)} tasks in ${seconds(span)}, of it ${seconds(work)} in tasks${rest}`
}

// A function and where its task is among those of its kind: add (3, 0).
export function name_of_task(name, key) {
    const position = /^\('.*', (.*)\)$/.exec(key ?? "")
    const place = position ? `(${position[1]})` : short_key(key ?? "")
    return place === "" || place === name ? name : `${name} ${place}`
}
