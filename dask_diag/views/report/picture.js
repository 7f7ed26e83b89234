// Parts of the page as a picture: what is seen of their boxes and words, and bokeh's own pictures of
// its figures. A page may not take a picture of itself.

const SCALE = 2                     // pixels of the picture for one of the page
const MARGIN = 16
const PERIOD = 4                    // pixels of a hatch; of each, whether a pixel of it is on a line
const HATCHES = {
    "hatch-up": (x, y) => x + y === PERIOD - 1, "hatch-down": (x, y) => x === y,
    "hatch-lines": (x, y) => y === 0, "hatch-dots": (x, y) => x + y === 0,
    "hatch-cross": (x, y) => x === y || x + y === PERIOD - 1, "striped": (x, y) => x === y,
    "line": () => true, "dashed": (x) => x > 0,
}
const LEFT_OUT = "button, details:not([open]), summary, script, .unseen, .pinned"
const SIDES = ["Top", "Right", "Bottom", "Left"]

export async function picture_of(elements) {
    const boxes = elements.map((element) => element.getBoundingClientRect())
    const left = Math.min(...boxes.map((box) => box.left)) - MARGIN
    const top = Math.min(...boxes.map((box) => box.top)) - MARGIN
    const width = Math.max(...boxes.map((box) => box.right)) + MARGIN - left
    const height = Math.max(...boxes.map((box) => box.bottom)) + MARGIN - top
    const canvas = document.createElement("canvas")
    canvas.width = SCALE * width
    canvas.height = SCALE * height
    const context = canvas.getContext("2d")
    context.scale(SCALE, SCALE)
    context.translate(-left, -top)
    context.fillStyle = getComputedStyle(document.body).backgroundColor
    context.fillRect(left, top, width, height)
    for (const element of elements) paint(context, element, {left, top, right: left + width,
                                                             bottom: top + height})
    return await new Promise((resolve) => { canvas.toBlob(resolve, "image/png") })
}

function paint(context, element, clip) {
    if (element.dataset.rootId !== undefined) {
        paint_figure(context, element.dataset.rootId)
        return
    }
    if (element.matches(LEFT_OUT) || element.getClientRects().length === 0) return
    const style = getComputedStyle(element), box = element.getBoundingClientRect()
    paint_box(context, element, style, box)
    const inside = style.overflow === "hidden" ? box : clip
    for (const child of element.childNodes) {
        if (child.nodeType === Node.ELEMENT_NODE) paint(context, child, inside)
        else if (child.nodeType === Node.TEXT_NODE) paint_words(context, child, style, inside)
    }
}

function paint_box(context, element, style, {left, top, width, height}) {
    context.fillStyle = style.backgroundColor
    context.fillRect(left, top, width, height)
    const hatch = Object.keys(HATCHES).find((name) => element.classList.contains(name))
    if (hatch !== undefined) {
        context.fillStyle = pattern_of(context, HATCHES[hatch], style.getPropertyValue("--color"))
        const is_line = ["line", "dashed"].includes(hatch)
        context.fillRect(left, is_line ? top + height / 2 - 1 : top, width, is_line ? 2 : height)
    }
    const [above, right, below, before] = SIDES.map((side) => parseFloat(style[`border${side}Width`]))
    const sides = [[left, top, width, above], [left + width - right, top, right, height],
                   [left, top + height - below, width, below], [left, top, before, height]]
    sides.forEach((side, n) => {
        context.fillStyle = style[`border${SIDES[n]}Color`]
        context.fillRect(...side)
    })
}

function pattern_of(context, is_on_line, color) {
    const tile = document.createElement("canvas")
    tile.width = tile.height = PERIOD
    const pen = tile.getContext("2d")
    pen.fillStyle = color
    for (let x = 0; x < PERIOD; x++)
        for (let y = 0; y < PERIOD; y++) if (is_on_line(x, y)) pen.fillRect(x, y, 1, 1)
    return context.createPattern(tile, "repeat")
}

// Each word where the page has it; what does not fit into a box is not seen there either.
function paint_words(context, node, style, clip) {
    context.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`
    context.fillStyle = style.color
    for (const word of node.data.matchAll(/[^\s\u00a0]+/g))
        paint_text(context, node, word.index, word[0], clip)
}

function paint_text(context, node, first, text, clip) {
    const range = document.createRange()
    range.setStart(node, first)
    range.setEnd(node, first + text.length)
    const boxes = range.getClientRects()
    if (boxes.length > 1 && text.length > 1) {
        // A word that goes on in the next line.
        const middle = text.length >> 1
        paint_text(context, node, first, text.slice(0, middle), clip)
        paint_text(context, node, first + middle, text.slice(middle), clip)
        return
    }
    if (boxes.length === 0 || boxes[0].top >= clip.bottom - 1) return
    const {left, top, height} = boxes[0]
    const {fontBoundingBoxAscent: ascent, fontBoundingBoxDescent: descent} = context.measureText(text)
    context.fillText(text, left, top + (height - ascent - descent) / 2 + ascent)
}

function paint_figure(context, id) {
    const view = Object.values(Bokeh.index).find(({model}) => model.id === id)
    if (view === undefined) return
    const {left, top, width, height} = view.el.getBoundingClientRect()
    if (width > 0) context.drawImage(view.export("png").canvas, left, top, width, height)
}
