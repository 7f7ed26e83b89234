// Views of models in a page, and the elements that take the keys of figures or have widgets' texts.

// Calls `use` with the element of each view of the model.
export function surface_of(model, use) {
    for (const view of Object.values(Bokeh.index).flatMap(views_below)) {
        const element = view.canvas_view?.events_el ?? view.el
        if (view.model === model && element) use(element)
    }
}

// A view and all views in it.
export function views_below(view) {
    return [view, ...(view.child_views ?? []).flatMap(views_below)]
}
