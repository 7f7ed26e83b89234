// Numbers stay with their units where lines break: "3.40 s" is never "3.40" at the end of one line
// and "s" in the next.

const NUMBER_AND_UNIT = /(\d) (?=(?:[mµn]?s|[kMGT]?B|CPUs?)(?![\p{L}\d]))/gu
const AS_WRITTEN = "pre, code, script, style"

export function keep_units() {
    for (const element of document.querySelectorAll("header, main")) {
        const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT)
        while (texts.nextNode()) {
            const {currentNode: text} = texts
            const joined = text.data.replace(NUMBER_AND_UNIT, "$1\u00a0")
            if (joined !== text.data && !text.parentElement.closest(AS_WRITTEN)) text.data = joined
        }
    }
}
