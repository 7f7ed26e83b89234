// What each page of sections does beside drawing its figures.

import {mark_findings} from "./findings.js"
import {follow} from "./navigation.js"
import {offer_sorting, PHONE, shorten_tables} from "./sorted_tables.js"

export function start_page({has_figures}) {
    keep_units()
    fold_sections()
    follow()
    offer_sorting()
    shorten_tables()
    if (has_figures) mark_findings()
}

// Folds the sections that are folded on a phone; their links unfold them.
function fold_sections() {
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

const NUMBER_AND_UNIT = /(\d) (?=(?:[mµn]?s|[kMGT]?B|CPUs?)(?![\p{L}\d]))/gu
const AS_WRITTEN = "pre, code, script, style"

// Keeps numbers with their units where lines break: "3.40 s" is never "3.40" at the end of one line
// and "s" in the next.
function keep_units() {
    for (const element of document.querySelectorAll("header, main")) {
        const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT)
        while (texts.nextNode()) {
            const {currentNode: text} = texts
            const joined = text.data.replace(NUMBER_AND_UNIT, "$1\u00a0")
            if (joined !== text.data && !text.parentElement.closest(AS_WRITTEN)) text.data = joined
        }
    }
}
