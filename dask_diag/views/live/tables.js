// What a live page says beside its figures. All of it is text, whatever is in a key.
//
// What has not changed is left alone: the browser would lay it out and paint it again.

import {count, percent, seconds} from "../formatting.js"

const MOST_IN_LEGEND = 24
const FIRST = 20, LAST = 9          // letters of a long key

// What part of the recording the figures show, and how many milliseconds pass until they are drawn again.
export function show_view(answer, period, off_cpu) {
    const {view, stream, over} = answer
    const is_binned = stream.columns > 0
    const parts = [`${seconds(view[1] - view[0])} in view`]
    parts.push(`${count(stream.tasks)} tasks${is_binned ? ", binned" : ""}`)
    if (stream.left_out) parts.push(`${stream.left_out} more workers are not drawn`)
    if (!over) parts.push(`drawn every ${count(period / 1000)} s`)
    set("in-view", parts.join("; "))
    show_title(answer)
    show_key("legend", [...stream.functions.slice(0, MOST_IN_LEGEND),
                         is_binned ? off_cpu.slice(0, 2) : off_cpu])
}

export function show_numbers(answer) {
    show_state(answer)
    show_share(answer)
    set("memory", answer.memory ? `Memory ${answer.memory}` : "")
    show_workers(answer.workers)
    fill("built", answer.built.map(row))
    document.getElementById("built-section").hidden = answer.built.length === 0
    fill("functions", answer.functions.map(([name, color, ...cells]) =>
        row([with_swatch(name, color), ...cells])))
    set("functions-more", answer.functions_left_out ? `and ${answer.functions_left_out} more` : "")
    fill("running", answer.running.map(([key, ...cells]) => row([on_one_line(key), ...cells])))
    set("running-title", answer.running_title)
    set("running-more", answer.running.length === 0 ? (answer.over ? "None." : "No task runs now.")
        : answer.running_left_out ? `and ${answer.running_left_out} more` : "")
    show_findings(answer)
    fill("notices", answer.notices.map((text) => element("li", text)))
    document.getElementById("notices-section").hidden = answer.notices.length === 0
}

// Nothing is known then of the recording: it may go on, or be complete.
export function show_lost(error, answered) {
    const notice = document.getElementById("lost-viewer")
    const [time, name] = [answered.toLocaleTimeString(), notice.dataset.file]
    set("lost-viewer", `The viewer does not answer (${error.message}). This page shows the state of `
        + `${time}, until the viewer answers again; "dask-diag live ${name}" starts another.`)
    notice.hidden = false
    set("kind", "not connected")
    document.getElementById("kind").className = "kind"
}

function show_state({kind, word, state, lines, preparation, long_running, over}) {
    set("kind", word)
    document.getElementById("kind").className = `kind ${kind.replaceAll(" ", "-")}`
    set("state-text", state)
    set("progress", lines[0])
    set("more-progress", lines.slice(1).join("; "))
    set("preparation", preparation)
    set("long-running", long_running)
    document.getElementById("report-link").hidden = !over
    document.getElementById("lost-viewer").hidden = true
}

// The browser paints its own window again for a title, which costs as much as half of all numbers: it
// is as old as the figures.
export function show_title({share, word, lines, over}) {
    const text = share === null || over ? lines[0] : percent(Math.floor(100 * share) / 100)
    if (document.title !== `${word}: ${text}`) document.title = `${word}: ${text}`
}

function show_share({share}) {
    const bar = document.getElementById("done")
    bar.hidden = share === null
    if (share === null) return
    const done = Math.floor(100 * share)
    bar.setAttribute("aria-valuenow", done)
    bar.firstElementChild.style.width = `${100 * share}%`
}

function show_workers(parts) {
    fill("workers-bar", parts.map(([text, time, share, color, style]) => {
        const part = element("span", "")
        part.style.cssText = `width: ${100 * share}%; --color: ${color}`
        part.className = style
        part.title = `${text}: ${time}`
        return part
    }))
    show_key("workers", parts.map(([text, time, , ...look]) => [`${text} (${time})`, ...look]))
}

function show_findings({findings, findings_note, over}) {
    set("findings-note", findings_note)
    const articles = findings.map(([code, cost, evidence, advice]) => {
        const article = element("article", "")
        article.className = "finding"
        article.append(element("h3", cost ? `${code}: ${cost}` : code), element("p", evidence),
                       element("p", advice))
        return article
    })
    fill("findings", articles.length ? articles : [element("p", over ? "None here." : "None yet.")])
}

function show_key(id, items) {
    fill(id, items.map((look) => {
        const item = element("li", "")
        item.append(with_swatch(...look))
        return item
    }))
}

// A key, of which the beginning is its function, and the end which of its tasks it is.
function on_one_line(key) {
    const letters = [...key], text = element("span", key)
    if (letters.length <= FIRST + LAST + 1) return text
    text.textContent = `${letters.slice(0, FIRST).join("")}…${letters.slice(-LAST).join("")}`
    text.title = key
    return text
}

function with_swatch(name, color, style = "") {
    const whole = element("span", ""), swatch = element("span", "")
    swatch.className = `swatch ${style}`
    swatch.style.setProperty("--color", color)
    whole.append(swatch, name)
    return whole
}

function row(cells) {
    const line = document.createElement("tr")
    cells.forEach((cell, index) => {
        const box = document.createElement(index === 0 ? "th" : "td")
        box.append(cell)
        if (index > 0) box.className = "number"
        else box.scope = "row"
        line.append(box)
    })
    return line
}

function element(kind, text) {
    const made = document.createElement(kind)
    made.textContent = text
    return made
}

function fill(id, children) {
    const parent = document.getElementById(id), before = [...parent.children]
    children.forEach((child, index) => {
        if (index >= before.length) parent.append(child)
        else if (!before[index].isEqualNode(child)) before[index].replaceWith(child)
    })
    before.slice(children.length).forEach((child) => child.remove())
}

function set(id, text) {
    const place = document.getElementById(id)
    if (place.textContent !== text) place.textContent = text
}
