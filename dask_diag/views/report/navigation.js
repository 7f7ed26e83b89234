// The entry of the navigation that holds the section in view is marked.

const SPACE = 8                     // pixels below the bar in which a heading counts as reached

export function follow() {
    const links = [...document.querySelectorAll("nav a[data-sections]")]
    const list = links[0]?.closest("ul")
    if (!list) return
    const names = links.flatMap((link) => link.dataset.sections.split(" "))
    const sections = names.map((name) => document.getElementById(name))
    const mark = () => mark_link(list, links, name_in_view(list, sections))
    mark()
    document.addEventListener("scroll", mark, {passive: true})
    window.addEventListener("resize", mark)
    // What is drawn or unfolded moves the sections below it.
    new ResizeObserver(mark).observe(document.body)
}

// The last section that begins above the first line below the bar; at the page's end the last.
function name_in_view(list, sections) {
    const {scrollTop, clientHeight, scrollHeight} = document.documentElement
    if (scrollTop > 0 && scrollTop + clientHeight >= scrollHeight - 1) return sections.at(-1).id
    const margin = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) || 0
    const line = Math.max(margin, list.getBoundingClientRect().bottom) + SPACE
    const reached = sections.filter((section) => section.getBoundingClientRect().top <= line)
    return (reached.at(-1) ?? sections[0]).id
}

function mark_link(list, links, name) {
    const current = links.find((link) => link.dataset.sections.split(" ").includes(name))
    if (current.hasAttribute("aria-current")) return
    for (const link of links) link.removeAttribute("aria-current")
    current.setAttribute("aria-current", "true")
    // Sideways only: scrollIntoView could move the page.
    const {left, right} = current.getBoundingClientRect()
    const bounds = list.getBoundingClientRect()
    if (left < bounds.left) list.scrollLeft -= bounds.left - left
    if (right > bounds.right) list.scrollLeft += right - bounds.right
}
