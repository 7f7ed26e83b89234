// Figures in the colours of the page, whether that is light or dark.
const dark = window.matchMedia("(prefers-color-scheme: dark)")
const ON_PAPER = new Map([["white", "--paper"], ["#444444", "--faint"],
                          ["#333333", "--ink"], ["black", "--ink"]])
const TEXTS_AND_LINES = ["axis_label_text_color", "major_label_text_color", "axis_line_color",
                         "major_tick_line_color", "minor_tick_line_color", "label_text_color"]
// What was drawn for white paper, and in what: texts and lines whose colours are values of glyphs.
const drawn = {line_color: new Map(), text_color: new Map()}

function models() {
    const roots = [...document.querySelectorAll(".figure [data-root-id]")]
    const found = roots.map((element) =>
        Bokeh.documents[0].get_model_by_id(element.dataset.rootId).references())
    return new Set(found.flatMap((references) => [...references]))
}

function style_widgets(all, style) {
    for (const model of all)
        if ("disabled" in model.properties && "stylesheets" in model.properties)
            model.stylesheets = [...model.stylesheets, style]
}

function paint() {
    const style = getComputedStyle(document.documentElement)
    const color = (name) => style.getPropertyValue(name).trim()
    for (const model of models()) {
        const has = (name) => name in model.properties && model[name] != null
        for (const name of TEXTS_AND_LINES) if (has(name)) model[name] = color("--ink")
        if (model.type == "Title") model.text_color = color("--ink")
        if (has("grid_line_color")) model.grid_line_color = color("--line")
        for (const [property, names] of Object.entries(drawn)) {
            const name = names.get(model) ?? ON_PAPER.get(model[property]?.value)
            if (name == null) continue
            names.set(model, name)
            model[property] = {value: color(name)}
        }
    }
}

function begin({widgets, fitted}) {
    if (!window.Bokeh || Bokeh.documents.length == 0)
        return void setTimeout(() => begin({widgets, fitted}), 20)
    const all = models()
    style_widgets(all, widgets)
    paint()
    dark.addEventListener("change", paint)
    if (!fitted) return
    fit(all)
    window.addEventListener("resize", () => fit(all))
    // What is folded has no width.
    document.addEventListener("toggle", () => fit(all), true)
}
