// The menu of what a reader can take away from the page: files, texts, and commands to copy.

import {count} from "../formatting.js"
import {model_of, tasks_in} from "./models.js"
import {text_of_page} from "./page_text.js"
import {picture_of} from "./picture.js"
import {copy, save} from "./save.js"
import {csv_of, lacks_of} from "./tasks_csv.js"

const PARTS_OF_THE_PICTURE = "header, #findings, #timeline"

export function offer_exports({menu: id, plot, rectangles, name, recorded}) {
    const menu = document.getElementById(id)
    if (menu === null) return
    const status = menu.querySelector("[role=status]")
    const actions = {
        csv: () => save_tasks(plot, rectangles, name, recorded),
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
async function save_tasks(plot, rectangles, name, recorded) {
    const page = await tasks_in(await model_of(plot), await model_of(rectangles))
    const key_of = await page.read_keys(Infinity)
    const {parts, has_short_names} = csv_of(page, key_of)
    const lacks = lacks_of(page, recorded, key_of !== null, has_short_names)
    const file_name = `${[name, "tasks", ...lacks.map(([word]) => word)].join("-")}.csv`
    const rest = lacks.map(([, text]) => `; ${text}`).join("")
    return `${saved(new Blob(parts, {type: "text/csv"}), file_name)} `
        + `${count(page.tasks.start.length)} tasks${rest}.`
}
