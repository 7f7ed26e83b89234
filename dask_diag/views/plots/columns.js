// Columns as bokeh's sources have them.

export function columns_of(...names) {
    return Object.fromEntries(names.map((name) => [name, []]))
}

export function append(columns, row) {
    for (const name in row) columns[name].push(row[name])
}

// The same columns without rows.
export function emptied(columns) {
    return columns_of(...Object.keys(columns))
}
