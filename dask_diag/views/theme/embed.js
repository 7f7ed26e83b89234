// Bokeh's figures, put into the page after its text has been painted: those on the first screen at
// once, the others one after the other.
//
// Their colors and widths are set before they are drawn: afterwards each would be laid out again.

const WAIT = 20                     // milliseconds
const LONGEST_WAIT = 500            // for a frame: a page that nobody sees paints none
const LONGEST_BUILD = 5000
// What bokeh writes into a script of data in place of letters that mean something to a page.
const ESCAPED = /&(?:amp|lt|gt);/g
const LETTERS = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}

// Decodes the figures of the page up to the last that is in view when it is opened. Returns them, and
// the others as they travelled: making their models would put off what is in view.
export async function decoded() {
    await painted()
    while (!window.Bokeh) await later(WAIT)
    const data = document.querySelector('script[type="application/json"]')
    const documents = JSON.parse(data.textContent.replace(ESCAPED, (escaped) => LETTERS[escaped]))
    const elements = [...document.querySelectorAll("[data-root-id]")]
    const element_of = ({id}) => elements.find(({dataset}) => dataset.rootId === id)
    const travelled = Object.values(documents)[0].roots
    const last = travelled.findLastIndex((root) => distance(element_of(root)) === 0)
    const rest = travelled.splice(Math.max(1, last + 1))
    await Bokeh.embed.embed_items(documents, [])
    const bokeh = Bokeh.documents.at(-1)
    return {
        bokeh,
        roots: bokeh.roots().map((model) => ({element: element_of(model), model})),
        rest: rest.map((json) => ({element: element_of(json), json})),
    }
}

// Draws all roots; calls back with each of the rest when it is decoded, and with the view of each.
export async function draw({bokeh, roots, rest}, is_decoded, is_drawn) {
    const waiting = roots.filter(({element}) => distance(element) > 0)
    const first = roots.filter((root) => !waiting.includes(root))
    bokeh.freeze_all_models(() => { for (const {model} of waiting) bokeh.remove_root(model) })
    // Bokeh draws the roots that its document has, each in the element of the same index. What is
    // called back later is called after this, which has the colors of a root before it is drawn.
    const elements = first.map(({element}) => element)
    let next = null
    bokeh.on_change(({kind, model}) => {
        if (kind === "RootAdded" && next.json) is_decoded(Object.assign(next, {model}))
    })
    await Bokeh.embed.add_document_standalone(bokeh, document.body, elements)
    for (const root of first) await finish(root, is_drawn)
    for (const {model} of first) await contents_of(model)
    // The rest refers to models of roots before it: those come first, and it comes in order.
    while (waiting.length + rest.length > 0) {
        await painted()
        next = waiting.length > 0 ? waiting.splice(index_of_nearest(waiting), 1)[0] : rest.shift()
        elements.push(next.element)
        if (next.json) bokeh.apply_json_patch({events: [{kind: "RootAdded", model: next.json}]})
        else bokeh.add_root(next.model)
        await finish(next, is_drawn)
    }
    document.documentElement.dataset.figures = "drawn"
}

function index_of_nearest(roots) {
    const distances = roots.map(({element}) => distance(element))
    return distances.indexOf(Math.min(...distances))
}

// Pixels between a figure and what is in view; of one that is folded there are none that are near.
function distance(element) {
    const figure = element.parentElement
    if (figure.getClientRects().length === 0) return Infinity
    const {top, bottom} = figure.getBoundingClientRect()
    return Math.max(0, top - window.innerHeight, -bottom)
}

async function finish({element, model}, is_drawn) {
    const stop = performance.now() + LONGEST_BUILD
    const view_of_model = () => Object.values(Bokeh.index).find((view) => view.model === model)
    while (!view_of_model()?.has_finished() && performance.now() < stop) await later(WAIT)
    element.parentElement.style.minHeight = ""
    if (view_of_model()) is_drawn(view_of_model())
}

// A figure may draw what it shows later than itself, as tasks that are unpacked: the others wait for
// that. In a page that nobody sees they do not.
async function contents_of({is_being_drawn}) {
    if (is_being_drawn !== undefined && !document.hidden)
        await Promise.race([is_being_drawn, later(LONGEST_BUILD)])
}

function later(milliseconds) {
    return new Promise((resolve) => { setTimeout(resolve, milliseconds) })
}

// When the browser has painted what the page has so far.
function painted() {
    const frame = new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve)) })
    return Promise.race([frame, later(LONGEST_WAIT)])
}
