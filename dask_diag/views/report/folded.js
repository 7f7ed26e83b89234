// Sections that are folded on a phone: their links unfold them.

import {PHONE} from "./sorted_tables.js"

export function fold_sections() {
    if (window.matchMedia(PHONE).matches)
        for (const fold of document.querySelectorAll("details.folded")) fold.open = false
    const unfold = (hash) => {
        const section = hash.length > 1 ? document.getElementById(hash.slice(1)) : null
        const fold = section?.querySelector(":scope > details.folded")
        if (fold) fold.open = true
    }
    unfold(window.location.hash)
    for (const link of document.querySelectorAll("nav a"))
        link.addEventListener("click", () => unfold(link.hash))
}
