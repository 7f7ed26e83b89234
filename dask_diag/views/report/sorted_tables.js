// Tables that a reader sorts: a click on the name of a column, the largest first, a second one the
// smallest first. A total stays below. Of long tables the first rows are shown, until all are asked for.

import {count} from "../formatting.js"

export const PHONE = "(max-width: 600px)"
const LEAST_LEFT_OUT = 2            // rows: a button takes the place of one
const FACTORS = {n: 1e-9, "µ": 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12}
const NUMBER = /^[≤≥<>~]?\s*(-?[\d.,]+)\s*([nµmkMGT]?)(?:s|B|%|×|$)/

export function offer_sorting() {
    for (const table of document.querySelectorAll("section table:not(.source)")) {
        const names = [...table.querySelectorAll("thead th")]
        if (table.tBodies[0].rows.length < 3) continue
        names.forEach((name) => {
            const button = document.createElement("button")
            button.type = "button"
            button.className = "sort"
            button.append(...name.childNodes)
            name.append(button)
            button.addEventListener("click", () => {
                const is_down = name.getAttribute("aria-sort") === "descending"
                const is_first = name.cellIndex === 0 && !name.hasAttribute("aria-sort")
                for (const other of names) other.removeAttribute("aria-sort")
                name.setAttribute("aria-sort", is_down || is_first ? "ascending" : "descending")
                sort_again(table)
            })
        })
    }
}

// In the order that the reader has chosen, if any: what its rows say may have changed.
export function sort_again(table) {
    const name = table.querySelector("thead [aria-sort]")
    if (name === null) return
    const is_ascending = name.getAttribute("aria-sort") === "ascending"
    sort(table.tBodies[0], name.cellIndex, is_ascending ? 1 : -1)
}

// A button below each long table, which shows its other rows too.
export function shorten_tables() {
    const is_on_a_phone = window.matchMedia(PHONE).matches
    for (const table of document.querySelectorAll("table[data-few]")) {
        const few = Number(table.dataset.few)
        const rows = [...table.tBodies[0].rows].filter((row) => !is_total(row)).length
        if (rows <= few + LEAST_LEFT_OUT) continue
        if ("fewOnAPhone" in table.dataset && !is_on_a_phone) continue
        table.classList.add("few")
        const button = document.createElement("button")
        button.type = "button"
        button.className = "plain"
        button.dataset.showAll = ""
        button.textContent = `Show all ${count(rows)}`
        button.addEventListener("click", () => {
            table.classList.remove("few")
            // The focus is not lost with the button.
            table.parentElement.focus()
            button.remove()
        })
        table.parentElement.after(button)
    }
}

// The button below a table whose rows are others now.
export function count_again(table) {
    const button = table.parentElement.nextElementSibling
    if (!button?.matches("[data-show-all]")) return
    const rows = table.tBodies[0].rows.length
    button.hidden = rows <= Number(table.dataset.few)
    button.textContent = `Show all ${count(rows)}`
}

function sort(body, column, direction) {
    const rows = [...body.rows]
    const total = is_total(rows.at(-1)) ? [rows.pop()] : []
    const text_of = (row) => row.cells[column].textContent.trim()
    const ordered = rows.map((row) => ({row, text: text_of(row), value: value_of(text_of(row))}))
    ordered.sort((one, other) => direction * difference(one, other))
    body.append(...ordered.map(({row}) => row), ...total)
}

function is_total(row) {
    return row.cells[0].textContent.trim() === "total"
}

// What is no number is less than any.
function difference(one, other) {
    if (Number.isNaN(one.value) && Number.isNaN(other.value)) return one.text.localeCompare(other.text)
    if (Number.isNaN(one.value)) return -1
    return Number.isNaN(other.value) ? 1 : one.value - other.value
}

// The number of a cell in seconds, bytes or per cent, whatever unit suits it.
export function value_of(text) {
    const match = NUMBER.exec(text.replaceAll("\u00a0", " "))
    return match === null ? NaN : Number(match[1].replaceAll(",", "")) * (FACTORS[match[2]] ?? 1)
}
