// Whether the page is light or dark: as the system is, until the reader chooses.

const DARK = "(prefers-color-scheme: dark)"
const CHANGED = "scheme-changed"    // the event of a choice, which scripts of a page share
const STORED = "dask_diag.scheme"

// Calls back when the page has become light or dark.
export function when_scheme_changes(callback) {
    window.matchMedia(DARK).addEventListener("change", callback)
    document.addEventListener(CHANGED, callback)
}

// Makes the button of the page the switch; from then on the page has the scheme chosen last.
export function offer_schemes() {
    const button = document.getElementById("scheme")
    const system = window.matchMedia(DARK)
    const dark_rules = rules_of_dark()
    let chosen = stored()
    const current = () => chosen ?? (system.matches ? "dark" : "light")
    const label = () => { button.textContent = current() === "dark" ? "Light" : "Dark" }
    const choose = (scheme) => {
        chosen = scheme
        show(scheme, dark_rules)
        label()
    }
    button.hidden = false
    if (chosen !== null) choose(chosen)
    label()
    system.addEventListener("change", label)
    button.addEventListener("click", () => {
        choose(current() === "dark" ? "light" : "dark")
        store(chosen)
        document.dispatchEvent(new Event(CHANGED))
    })
}

// The rules of style sheets that hold in the dark. They are there once: a choice says when they hold.
function rules_of_dark() {
    // Those of other sites cannot be read.
    const sheets = [...document.styleSheets].filter((sheet) => sheet.href === null)
    return sheets.flatMap((sheet) => [...sheet.cssRules]).filter((rule) => rule.media?.mediaText === DARK)
}

function show(scheme, dark_rules) {
    for (const rule of dark_rules) rule.media.mediaText = scheme === "dark" ? "all" : "not all"
    document.documentElement.style.colorScheme = scheme
}

// Some browsers refuse pages in files, and in frames, a storage.
function stored() {
    try {
        const scheme = window.localStorage.getItem(STORED)
        return ["light", "dark"].includes(scheme) ? scheme : null
    } catch {
        return null
    }
}

function store(scheme) {
    try {
        window.localStorage.setItem(STORED, scheme)
    } catch {
        // Then the choice holds until the page is closed.
    }
}
