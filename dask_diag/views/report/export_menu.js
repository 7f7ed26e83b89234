// The menu of what a reader can take away from the page: files, texts, and commands to copy.

import {count} from "../formatting.js"
import {models_of, RECTANGLES, tasks_in, TASKS} from "./models.js"
import {text_of_page} from "./page_text.js"
import {picture_of} from "./picture.js"
import {csv_of, lacks_of} from "./tasks_csv.js"

const PARTS_OF_THE_PICTURE = "header, #findings, #timeline"
const RELEASED_AFTER = 60_000       // milliseconds

export function offer_exports({name, recorded}) {
    const menu = document.getElementById("export")
    const status = menu.querySelector("[role=status]")
    const actions = {
        csv: () => save_tasks(name, recorded),
        text: () => saved(new Blob([text_of_page()], {type: "text/plain"}), `${name}.txt`),
        "copy-text": () => copied(text_of_page()),
        picture: async () => {
            const parts = [...document.querySelectorAll(PARTS_OF_THE_PICTURE)]
            return saved(await picture_of(parts), `${name}.png`)
        },
    }
    for (const button of menu.querySelectorAll("button")) {
        const work = actions[button.dataset.export] ?? (() => copied(button.dataset.copy))
        button.addEventListener("click", async () => {
            status.textContent = "…"
            try {
                status.textContent = await work()
            } catch (error) {
                status.textContent = `This cannot be done: ${error.message}.`
            }
        })
    }
    close_when_left(menu)
}

// Escape closes it, and gives the focus back; so does a click elsewhere, or a focus elsewhere.
function close_when_left(menu) {
    menu.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || !menu.open) return
        menu.open = false
        menu.querySelector("summary").focus()
    })
    for (const type of ["pointerdown", "focusin"])
        document.addEventListener(type, ({target}) => {
            if (!menu.contains(target)) menu.open = false
        })
}

function saved(blob, file_name) {
    save(blob, file_name)
    return `Saved as ${file_name}.`
}

async function copied(text) {
    await copy(text)
    return "Copied."
}

// All tasks that the page has; what it does not have of them is in the file's name, too.
async function save_tasks(name, recorded) {
    const page = await tasks_in(...await models_of(TASKS, RECTANGLES))
    const key_of = await page.read_keys(Infinity)
    const {parts, has_short_names} = csv_of(page, key_of)
    const lacks = lacks_of(page, recorded, key_of !== null, has_short_names)
    const file_name = `${[name, "tasks", ...lacks.map(([word]) => word)].join("-")}.csv`
    const rest = lacks.map(([, text]) => `; ${text}`).join("")
    return `${saved(new Blob(parts, {type: "text/csv"}), file_name)} `
        + `${count(page.tasks.start.length)} tasks${rest}.`
}

function save(blob, file_name) {
    const link = document.createElement("a")
    link.href = URL.createObjectURL(blob)
    link.download = file_name
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), RELEASED_AFTER)
}

async function copy(text) {
    try {
        await navigator.clipboard.writeText(text)
    } catch {
        // Some browsers have no clipboard for pages in files.
        copy_selected(text)
    }
}

function copy_selected(text) {
    const area = document.createElement("textarea")
    const focused = document.activeElement
    area.value = text
    document.body.append(area)
    area.select()
    const is_copied = document.execCommand("copy")
    area.remove()
    focused?.focus()
    if (!is_copied) throw new Error("the browser does not let pages copy: select the text")
}
