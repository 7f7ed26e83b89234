// What the report says, as text: its first sentences, the findings, and the summary.

export function text_of_page() {
    const parts = [
        ...texts("header h1, header > p:not(.notice)"),
        ...texts("header .notice"),
        list("header .key li"),
        ...[...document.querySelectorAll("#findings .finding")].map(finding_text),
        ...texts("#findings > p"),
        ...[...document.querySelectorAll("#functions table")].map(table_text),
        list("#summary li"),
    ]
    return `${parts.filter((part) => part !== "").join("\n\n")}\n`
}

function plain(element) {
    return element.textContent.replace(/\s+/g, " ").trim()
}

function texts(selector) {
    return [...document.querySelectorAll(selector)].map(plain)
}

function list(selector) {
    return texts(selector).map((text) => `- ${text}`).join("\n")
}

function finding_text(finding) {
    return [...finding.querySelectorAll("h3, p")].map(plain).join("\n")
}

// Columns as wide as their longest cell; the first is text, the others are numbers. Bars are left out.
function table_text(table) {
    const cells = (row) => [...row.cells].filter((cell) => !cell.matches(".bar-cell"))
    const rows = [...table.querySelectorAll("tr")].map((row) => cells(row).map(plain))
    const widths = rows[0].map((_, n) => Math.max(...rows.map((row) => (row[n] ?? "").length)))
    const line = (row) => row
        .map((text, n) => n === 0 ? text.padEnd(widths[n]) : text.padStart(widths[n])).join("  ").trimEnd()
    return [plain(table.caption), ...rows.map(line)].join("\n")
}
