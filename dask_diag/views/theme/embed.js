// Bokeh's figures, put into the page after its text has been painted: those on the first screen at
// once, the others one after the other, the nearest to it first.
//
// Their colours and widths are set before they are drawn: afterwards each would be laid out again.

const WAIT = 20                     // milliseconds
const LONGEST_WAIT = 500            // for a frame: a page that nobody sees paints none
const LONGEST_BUILD = 5000

// Decodes the figures of the page, once. Returns those in view when it is opened, and the others.
export async function decoded() {
    await painted()
    while (!window.Bokeh) await later(WAIT)
    const data = document.querySelector('script[type="application/json"]')
    await Bokeh.embed.embed_items(data.textContent, [])
    const bokeh = Bokeh.documents.at(-1)
    const elements = [...document.querySelectorAll("[data-root-id]")]
    return {bokeh, roots: elements.map((element) =>
        ({element, model: bokeh.get_model_by_id(element.dataset.rootId)}))}
}

// Draws all roots; calls back with the view of each.
export async function draw({bokeh, roots}, is_drawn) {
    const waiting = roots.filter(({element}) => distance(element) > 0)
    const first = roots.filter((root) => !waiting.includes(root))
    // Bokeh draws the roots that its document has, each in the element of the same index.
    for (const {model} of waiting) bokeh.remove_root(model)
    const elements = bokeh.roots().map((model) => first.find((root) => root.model === model).element)
    await Bokeh.embed.add_document_standalone(bokeh, document.body, elements)
    for (const root of first) await finish(root, is_drawn)
    for (const {model} of first) await contents_of(model)
    while (waiting.length > 0) {
        await painted()
        const [next] = waiting.splice(index_of_nearest(waiting), 1)
        elements.push(next.element)
        bokeh.add_root(next.model)
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
