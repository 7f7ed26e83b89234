// Figures in the colours of the page, whether that is light or dark.

import {fit} from "./fit_width.js"
import {make_interactive} from "./interaction.js"

const WAIT_FOR_BOKEH = 20           // milliseconds
const DARK = "(prefers-color-scheme: dark)"
// Colours that figures are made with, and the variable that has its like in the page's theme.
const VARIABLES = new Map([["white", "--background"], ["#444444", "--muted"],
                           ["#333333", "--foreground"], ["black", "--foreground"]])
const TEXTS_AND_LINES = ["axis_label_text_color", "major_label_text_color", "axis_line_color",
                         "major_tick_line_color", "minor_tick_line_color", "label_text_color"]

export function start({widgets, fitted}) {
    if (!window.Bokeh || Bokeh.documents.length === 0) {
        setTimeout(() => start({widgets, fitted}), WAIT_FOR_BOKEH)
        return
    }
    const models = models_of_figures()
    // Of glyphs and labels the variable of the colour that they were made with.
    const variables = {line_color: new Map(), text_color: new Map()}
    style_widgets(models, widgets)
    paint(variables)
    window.matchMedia(DARK).addEventListener("change", () => paint(variables))
    make_interactive()
    if (!fitted) return
    fit()
    window.addEventListener("resize", fit)
    // What is folded has no width.
    document.addEventListener("toggle", fit, true)
}

function models_of_figures() {
    const roots = [...document.querySelectorAll(".figure [data-root-id]")]
    const references = roots.map((element) =>
        Bokeh.documents[0].get_model_by_id(element.dataset.rootId).references())
    return new Set(references.flatMap((models) => [...models]))
}

function style_widgets(models, style) {
    for (const model of models)
        if ("disabled" in model.properties && "stylesheets" in model.properties)
            model.stylesheets = [...model.stylesheets, style]
}

function paint(variables) {
    const style = getComputedStyle(document.documentElement)
    const color = (variable) => style.getPropertyValue(variable).trim()
    for (const model of models_of_figures()) {
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
