// Files and texts that a reader takes from the page; nothing is asked of the network.

const RELEASED_AFTER = 60_000       // milliseconds

export function save(blob, file_name) {
    const link = document.createElement("a")
    link.href = URL.createObjectURL(blob)
    link.download = file_name
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), RELEASED_AFTER)
}

export async function copy(text) {
    try {
        await navigator.clipboard.writeText(text)
    } catch {
        // Some browsers have no clipboard for pages in files.
        copy_selected(text)
    }
}

function copy_selected(text) {
    const area = document.createElement("textarea")
    const focused = document.activeElement
    area.value = text
    document.body.append(area)
    area.select()
    const is_copied = document.execCommand("copy")
    area.remove()
    focused?.focus()
    if (!is_copied) throw new Error("the browser does not let pages copy: select the text")
}
