// The element of a model in a page that takes the keys of a figure, or has a widget's text.

// Calls `use` with the element of each view of the model.
export function surface_of(model, use) {
    for (const root of Object.values(Bokeh.index)) {
        for (const view of views_below(root)) {
            if (view.model !== model) continue
            const element = view.canvas_view?.events_el ?? view.el
            if (element) use(element)
        }
    }
}

function views_below(view) {
    return [view, ...(view.child_views ?? []).flatMap(views_below)]
}
