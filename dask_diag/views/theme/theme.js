// Figures in the colours of the page, whether that is light or dark.

import {decoded, draw} from "./embed.js"
import {fit} from "./fit_width.js"
import {make_interactive} from "./interaction.js"
import {keep_in_address} from "./range_in_address.js"
import {when_scheme_changes} from "./scheme.js"

// Colours that figures are made with, and the variable that has its like in the page's theme.
const VARIABLES = new Map([["white", "--background"], ["#444444", "--muted"],
                           ["#333333", "--foreground"], ["black", "--foreground"]])
const TEXTS_AND_LINES = ["axis_label_text_color", "major_label_text_color", "axis_line_color",
                         "major_tick_line_color", "minor_tick_line_color", "label_text_color"]

export async function start({widgets, fitted}) {
    const figures = await decoded()
    // Of glyphs and labels the variable of the colour that they were made with.
    const variables = {line_color: new Map(), hatch_color: new Map(), text_color: new Map()}
    const roots = [], known = new Set()
    const prepare = (root) => {
        roots.push(root)
        const models = [...root.model.references()].filter((model) => !known.has(model))
        for (const model of models) known.add(model)
        style_widgets(models, widgets)
        paint(models, variables)
        if (fitted) fit([root])
        const axis = models.find((model) => model.name === "time axis")
        if (axis !== undefined) keep_in_address(axis)
    }
    for (const root of figures.roots) prepare(root)
    when_scheme_changes(() => paint(models_of(roots), variables))
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

function style_widgets(models, style) {
    for (const model of models)
        if ("disabled" in model.properties && "stylesheets" in model.properties)
            model.stylesheets = [...model.stylesheets, style]
}

function paint(models, variables) {
    const style = getComputedStyle(document.documentElement)
    const color = (variable) => style.getPropertyValue(variable).trim()
    for (const model of models) {
        const has = (property) => property in model.properties && model[property] !== null
        for (const property of TEXTS_AND_LINES)
            if (has(property)) model[property] = color("--foreground")
        if (model.type === "Title") model.text_color = color("--foreground")
        if (has("grid_line_color")) model.grid_line_color = color("--line")
        for (const [property, of_models] of Object.entries(variables)) {
            // Of a glyph it is a field or a value, of a label a colour.
            const is_plain = typeof model[property] === "string"
            const made_with = is_plain ? model[property] : model[property]?.value
            const variable = of_models.get(model) ?? VARIABLES.get(made_with)
            if (variable === undefined) continue
            of_models.set(model, variable)
            model[property] = is_plain ? color(variable) : {value: color(variable)}
        }
    }
}
