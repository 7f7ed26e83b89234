// Tables that a reader sorts: a click on the name of a column, the largest first, a second one the
// smallest first. A total stays below.

const FACTORS = {n: 1e-9, "µ": 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12}
const NUMBER = /^[≤≥<>~]?\s*(-?[\d.,]+)\s*([nµmkMGT]?)(?:s|B|%|×|$)/

export function offer_sorting() {
    for (const table of document.querySelectorAll("section table")) {
        const names = [...table.querySelectorAll("thead th")]
        if (table.tBodies[0].rows.length < 3) continue
        names.forEach((name, column) => {
            const button = document.createElement("button")
            button.type = "button"
            button.className = "sort"
            button.append(...name.childNodes)
            name.append(button)
            button.addEventListener("click", () => {
                const is_down = name.getAttribute("aria-sort") === "descending"
                const is_first = column === 0 && !name.hasAttribute("aria-sort")
                for (const other of names) other.removeAttribute("aria-sort")
                const is_ascending = is_down || is_first
                name.setAttribute("aria-sort", is_ascending ? "ascending" : "descending")
                sort(table.tBodies[0], column, is_ascending ? 1 : -1)
            })
        })
    }
}

function sort(body, column, direction) {
    const rows = [...body.rows]
    const total = rows.at(-1).cells[0].textContent.trim() === "total" ? [rows.pop()] : []
    const text_of = (row) => row.cells[column].textContent.trim()
    const ordered = rows.map((row) => ({row, text: text_of(row), value: value_of(text_of(row))}))
    ordered.sort((one, other) => direction * difference(one, other))
    body.append(...ordered.map(({row}) => row), ...total)
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
