// The names of bars at their axis. They import nothing: each axis takes its own copy to the page.

export function label_of_row(rows, tick) {
    return rows.data.label[Math.round(tick)] ?? ""
}
