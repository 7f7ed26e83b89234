// Figures of a page, in its colors and as wide as it.

import {decoded, draw} from "./embed.js"
import {fit} from "./fit_width.js"
import {make_interactive} from "./interaction.js"
import {paint, style_widgets} from "./paint.js"
import {keep_in_address} from "./range_in_address.js"
import {when_scheme_changes} from "./scheme.js"

export async function start({widgets, fitted}) {
    const figures = await decoded()
    const roots = [], known = new Set()
    const prepare = (root) => {
        roots.push(root)
        const models = [...root.model.references()].filter((model) => !known.has(model))
        for (const model of models) known.add(model)
        style_widgets(models, widgets)
        paint(models, root.element)
        if (fitted) fit([root])
        const axis = models.find((model) => model.name === "time axis")
        if (axis !== undefined) keep_in_address(axis)
    }
    for (const root of figures.roots) prepare(root)
    when_scheme_changes(() => paint(models_of(roots), document.body))
    if (fitted) fit_always(roots)
    await draw(figures, prepare, make_interactive)
}

function fit_always(roots) {
    const fit_all = () => fit(roots)
    window.addEventListener("resize", fit_all)
    // What is folded has no width.
    document.addEventListener("toggle", fit_all, true)
}

function models_of(roots) {
    return new Set(roots.flatMap(({model}) => [...model.references()]))
}
