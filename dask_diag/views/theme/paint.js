// Models of bokeh in the colors of the page, whether that is light or dark.

// Colors that figures are made with, and the variable that has its like in the page's theme.
const VARIABLES = new Map([["white", "--background"], ["#444444", "--muted"],
                           ["#333333", "--foreground"], ["black", "--foreground"]])
const TEXTS_AND_LINES = ["axis_label_text_color", "major_label_text_color", "axis_line_color",
                         "major_tick_line_color", "minor_tick_line_color", "label_text_color"]
// Of glyphs and labels the variable of the color that they were made with.
const made_of = {line_color: new Map(), hatch_color: new Map(), text_color: new Map()}

export function style_widgets(models, style) {
    for (const model of models)
        if ("disabled" in model.properties && "stylesheets" in model.properties)
            model.stylesheets = [...model.stylesheets, style]
}

// Takes the colors from the variables of the place of the models.
export function paint(models, element) {
    const style = getComputedStyle(element)
    const color = (variable) => style.getPropertyValue(variable).trim()
    for (const model of models) {
        const has = (property) => property in model.properties && model[property] !== null
        for (const property of TEXTS_AND_LINES)
            if (has(property)) model[property] = color("--foreground")
        if (model.type === "Title") model.text_color = color("--foreground")
        if (has("grid_line_color")) model.grid_line_color = color("--line")
        for (const [property, of_models] of Object.entries(made_of)) {
            // Of a glyph it is a field or a value, of a label a color.
            const is_plain = typeof model[property] === "string"
            const made_with = is_plain ? model[property] : model[property]?.value
            const variable = of_models.get(model) ?? VARIABLES.get(made_with)
            if (variable === undefined) continue
            of_models.set(model, variable)
            model[property] = is_plain ? color(variable) : {value: color(variable)}
        }
    }
}
